"""A kernel that takes far longer than its bytes and operations need is told; a good one is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.findings.collectives import overlaps_collective
from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.rule import Candidate
from profiler_ext.findings.rules.far_from_roofline import RULE
from tests.findings.stepping import US, Script, judged
from tests.findings.test_missed_fusion import with_graphs
from tests.handmade import interned, masked


def rates(launches: int) -> dict[str, np.ma.MaskedArray]:
    """How fast launches are, and how fast they could be."""
    each = {
        "tflop_per_s": 110.2,
        "attainable_tflop_per_s": 989.5,
        "gb_per_s": 1_200.0,
        "bandwidth_fraction": 0.25,
    }
    return {name: np.ma.array([rate] * launches) for name, rate in each.items()}


def candidates(kernel: str, roofline_us: int, bound: str = "compute") -> list[Candidate]:
    """What the rule would say of two launches of 100 us, with this much at their roofline."""
    script = Script()
    for _ in range(2):
        script.launch(kernel, 100 * US, op="aten::mm")
    script.wait()
    script.end_step()
    facts = Facts(script.analysis())
    could_take = roofline_us * US * 10 // 8
    changed = replace(
        facts.rooflines,
        roofline_ns=masked([roofline_us * US] * 2),
        could_save_ns=masked([100 * US - could_take] * 2),
        bound=interned([bound] * 2),
        **rates(2),
    )
    facts.__dict__["rooflines"] = changed
    findings = RULE.judge(facts)
    assert not isinstance(findings, CannotJudge)
    return list(findings)


def test_a_product_at_an_eighth_of_the_peak_could_save_most_of_its_time() -> None:
    (found,) = candidates("extern_kernels.mm", 12)
    assert found.est_saving_ns == 2 * 85 * US
    assert found.summary == "a kernel takes 8.3 times as long as its roofline"
    assert [each.value for each in found.evidence] == [
        *(2, 200 * US, 24 * US, "arithmetic"),
        *("110 of 990 TFLOP/s", "extern_kernels.mm"),
    ]
    assert "multiples of 64" in found.remedy


def test_a_product_that_reads_badly_is_reported_by_its_bytes() -> None:
    (found,) = candidates("triton_tem_fused_mm_0", 20, "memory")
    assert "its operands" in found.remedy
    assert found.evidence[4].value == "1,200 of 4,800 GB/s"


def test_a_product_at_half_of_the_peak_is_none() -> None:
    assert candidates("extern_kernels.mm", 50) == []


def test_attention_convolutions_generated_kernels_and_what_is_too_short_are_not_judged() -> None:
    for kernel in ("torch.ops.aten._scaled_dot_product_cudnn_attention.default", "conv2d_c1_k1"):
        assert candidates(kernel, 12) == []
    assert candidates("triton_red_fused__log_softmax_0", 12, "memory") == []
    assert candidates("extern_kernels.mm", 2, "latency") == []


def test_what_runs_next_to_a_collective_is_slowed_by_it_and_not_judged() -> None:
    script = Script()
    script.launch("extern_kernels.mm", 100 * US)
    script.launch("ncclDevKernel_AllReduce", 300 * US, op="c10d::allreduce_", stream=20)
    script.free_ns -= 200 * US
    for _ in range(3):
        script.launch("extern_kernels.mm", 100 * US)
    script.wait()
    script.end_step()
    facts = Facts(script.analysis())
    assert overlaps_collective(facts).tolist() == [False, False, True, True, False]
    changed = replace(
        facts.rooflines,
        roofline_ns=masked([10 * US] * 5),
        could_save_ns=masked([90 * US] * 5),
        bound=interned(["compute"] * 5),
        **rates(5),
    )
    facts.__dict__["rooflines"] = changed
    findings = RULE.judge(facts)
    assert not isinstance(findings, CannotJudge)
    (found,) = findings
    assert found.launches.tolist() == [0, 4]


def test_without_rooflines_it_cannot_be_judged() -> None:
    script = Script()
    script.launch("extern_kernels.mm", 100 * US, op="aten::mm")
    script.wait()
    script.end_step()
    (unjudged,) = judged(RULE, script.analysis()).rules_skipped
    assert unjudged.reason.startswith("no launch has a roofline")
    assert np.ma.getmaskarray(Facts(script.analysis()).rooflines.could_save_ns).all()


@pytest.mark.parametrize(
    ("options", "is_recommended"), [(("epilogue_fusion",), True), (("max_autotune_gemm",), False)]
)
def test_max_autotune_is_recommended_where_it_was_off(
    options: tuple[str, ...], is_recommended: bool
) -> None:
    facts = Facts(with_graphs("prologue", record={"fusion_options": options}))
    count, known = len(facts.launches), facts.rooflines
    facts.__dict__["rooflines"] = replace(
        known,
        roofline_ns=np.ma.array(facts.launches.duration_ns // 10),
        could_save_ns=np.ma.array(facts.launches.duration_ns * 7 // 8),
        bound=interned(["compute"] * count),
        **rates(count),
    )
    found = RULE.judge(facts)
    assert not isinstance(found, CannotJudge)
    remedies = {each.remedy for each in found}
    assert len(remedies) == 1
    assert ("max-autotune" in remedies.pop()) is is_recommended
