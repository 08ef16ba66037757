"""Kernels that a setting or an edit makes one are reported with what that gained; others are not.

The sessions are of an H100 (`verification/fusions`), where the remedied step was timed, too.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import profiler_ext
from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.rule import Candidate
from profiler_ext.findings.rules import missed_fusion
from profiler_ext.findings.rules.missed_fusion import RULE
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.provenance import Autotuned, Choice, GraphInstance
from profiler_ext.records.vocabulary import ChoiceKind, SiteKind
from profiler_ext.rooflines.intermediates import crossing_buffers, kernel_sides, memory_bytes_per_ns
from tests.analyses import gpu_step
from tests.cases.neutral import SUFFIX

FOLDER = Path(__file__).parents[1] / "fixtures" / "fusions"
FACTOR = 2


def analysis_of(name: str) -> Analysis:
    (analysis,) = profiler_ext.load(FOLDER / f"{name}{SUFFIX}").analyses
    return analysis


def judged(analysis: Analysis) -> list[Candidate]:
    """What the rule says, without what saves nothing."""
    verdict = RULE.judge(Facts(analysis))
    assert not isinstance(verdict, CannotJudge), verdict
    return [each for each in verdict if each.est_saving_ns]


def with_graphs(name: str, **changes: object) -> Analysis:
    """A session whose graphs have other fields; records of graphs are changed with ``record``."""
    analysis = analysis_of(name)
    of_record = changes.pop("record", {})

    def changed(graph: GraphInstance) -> GraphInstance:
        assert graph.provenance is not None
        provenance = dataclasses.replace(graph.provenance, **of_record)  # type: ignore[arg-type]
        return dataclasses.replace(graph, provenance=provenance, **changes)  # type: ignore[arg-type]

    graphs = tuple(map(changed, analysis.recording.graphs))
    recording = dataclasses.replace(analysis.recording, graphs=graphs)
    return dataclasses.replace(analysis, recording=recording)


@pytest.mark.parametrize(
    ("name", "gain_ms", "code", "remedy"),
    [
        ("two_functions", 0.503, ("gate * F.silu(h)", "x * (1 + scale)"), "one function around"),
        ("disabled_helper", 0.755, ("h * torch.sigmoid(gate)",), "fullgraph=True"),
        ("eager_between", 2.891, ("h.masked_fill(padding, 0.0)",), "around all three"),
        ("custom_op", 2.142, ("squared_relu(h)",), "PyTorch ops"),
        ("complex_rotation", 1.079, ("pairs * freqs",), "real and imaginary parts"),
        ("stencil", 0.298, ("field[1:] - field[:-1]",), '"realize_reads_threshold": 16'),
        ("pool_of_sum", 0.358, ("F.avg_pool2d(h, 2)",), "mean of a view"),
        ("transposed_copy", 0.255, ("rows.t().contiguous()",), '"loop_ordering_after_fusion"'),
        ("user_triton", 2.156, ("_swiglu[",), "PyTorch ops"),
        ("side_by_side", 0.575, ("zip(x.unbind(1)",), '"combo_kernels": True'),
        ("prologue", 1.443, ("rows @ weight",), '"max_autotune": True'),
    ],
)
def test_what_is_said_at_a_line_is_what_its_remedy_gained_within_a_factor_of_two(
    name: str, gain_ms: float, code: tuple[str, ...], remedy: str
) -> None:
    found = [each for each in judged(analysis_of(name)) if each.est_saving_ns > 50_000]
    assert len(found) == len(code)
    for each in found:
        assert any(own in (each.location.code or "") for own in code)
        assert remedy in each.remedy
    said_ms = sum(each.est_saving_ns for each in found) / 1e6
    assert 1 / FACTOR <= said_ms / gain_ms <= FACTOR


def test_the_finding_names_both_kernels_with_their_lines_and_what_passes() -> None:
    (found,) = judged(analysis_of("stencil"))
    values = {each.name: each.value for each in found.evidence}
    assert values["kernels"] == (
        "triton_poi_fused_add_mul_0 (programs.py:252) and "
        "triton_poi_fused_abs_slice_sub_1 (programs.py:253)"
    )
    assert values["launches a step"] == 2
    assert values["memory traffic to save"] == pytest.approx(2 * 65536 * 4096 * 2, rel=1e-4)
    assert values["reason"] == "no shared data"


def test_a_graph_break_is_named_as_the_reason() -> None:
    (found,) = judged(analysis_of("disabled_helper"))
    reasons = [each.value for each in found.evidence if each.name == "reason"]
    assert reasons == ["a graph break at programs.py:63"]


def test_nothing_is_said_of_the_remedied_step() -> None:
    assert judged(analysis_of("custom_op_remedied")) == []


def test_a_step_that_waits_for_the_cpu_saves_nothing() -> None:
    facts = Facts(analysis_of("stencil"))
    pace = dataclasses.replace(facts.pace, is_critical=np.zeros(len(facts.launches), np.bool_))
    facts.__dict__["pace"] = pace
    verdict = RULE.judge(facts)
    assert not isinstance(verdict, CannotJudge)
    assert [each.est_saving_ns for each in verdict] == [0]


def test_buckets_of_one_compile_are_apart_on_purpose() -> None:
    assert len(list(crossing_buffers(analysis_of("two_functions")))) == 2
    assert list(crossing_buffers(with_graphs("two_functions", compile_id="0/0"))) == []


def test_buffers_are_of_one_direction_and_know_their_readers() -> None:
    forward, backward = crossing_buffers(analysis_of("two_functions"))
    assert (forward.readers, forward.is_saved) == (1, True)
    assert (backward.readers, backward.is_saved) == (2, False)
    assert forward.passed.bytes == backward.passed.bytes == 65536 * 4096 * 2


def test_residual_streams_between_blocks_count_half_of_the_load() -> None:
    (found,) = (
        each for each in judged(analysis_of("regional_blocks")) if "one graph" in each.summary
    )
    assert found.est_saving_ns / 1e6 == pytest.approx(0.199, rel=0.3)


@pytest.mark.parametrize(
    ("kernel", "op", "is_reported"),
    [
        ("triton_poi_fused_0", None, True),
        ("triton_red_fused_0", None, False),
        ("triton_red_fused_0", "aten::mm", True),
    ],
)
def test_nothing_is_said_where_one_backward_would_compute_what_is_kept_now(
    kernel: str, op: str | None, is_reported: bool
) -> None:
    """Four blocks of a norm, compiled apart, took 0.67 ms less on an H100 than in one graph."""
    (analysis,) = profiler_ext.load(FOLDER / f"two_functions{SUFFIX}").analyses
    forward, _ = crossing_buffers(analysis)
    assert forward.is_saved
    writer = dataclasses.replace(forward.writer.site, kernel=kernel)
    crossing = dataclasses.replace(forward, writer=dataclasses.replace(forward.writer, site=writer))
    sides = dict(kernel_sides(analysis))
    if op is not None:
        product = dataclasses.replace(writer, kind=SiteKind.EXTERN, op=op)
        sides[crossing.graph, 99] = dataclasses.replace(forward.writer, site=product)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(missed_fusion, "kernel_sides", lambda _: sides)
        patch.setattr(missed_fusion, "crossing_buffers", lambda _: iter([crossing]))
        assert any("one graph" in each.summary for each in judged(analysis)) == is_reported


def test_a_concatenation_of_many_parts_counts_what_its_reader_would_not_load() -> None:
    name, gain_ms = "cat_of_many", 0.217
    (graph, *_) = analysis_of(name).recording.graphs
    assert graph.provenance is not None
    (recorded,) = graph.provenance.intermediates
    moved = 12 * recorded.read_bytes  # this one was recorded with the bytes of one part
    whole = dataclasses.replace(recorded, read_bytes=moved, written_bytes=moved)
    (found,) = judged(with_graphs(name, record={"intermediates": (whole,)}))
    assert '"max_pointwise_cat_inputs": 16' in found.remedy
    assert 1 / FACTOR <= found.est_saving_ns / 1e6 / gain_ms <= FACTOR


def test_options_that_are_on_are_not_recommended() -> None:
    on = ("epilogue_fusion", "loop_ordering_after_fusion", "max_autotune")
    for name in ("transposed_copy", "prologue"):
        assert judged(with_graphs(name, record={"fusion_options": on})) == []
        assert judged(with_graphs(name, record={"fusion_options": ()})) == []  # not recorded


def test_max_autotune_is_not_recommended_where_its_templates_lost() -> None:
    choices = (
        Choice("mm", ChoiceKind.LIBRARY, "", 91_000),
        Choice("triton_mm", ChoiceKind.TEMPLATE, "BLOCK_M=64", 104_000),
    )
    for sites, count in (((1,), 0), ((7,), 1)):
        tuned = Autotuned(sites, choices, chosen=0)
        assert len(judged(with_graphs("prologue", record={"autotuned": (tuned,)}))) == count


def test_no_saving_is_more_than_the_kernels_take() -> None:
    for path in FOLDER.glob(f"*{SUFFIX}"):
        analysis = analysis_of(path.name.removesuffix(SUFFIX))
        if memory_bytes_per_ns(analysis) is not None:
            facts = Facts(analysis)
            for each in judged(analysis):
                took_ns = facts.launches.duration_ns[each.launches]
                assert each.est_saving_ns <= facts.median_per_step(each.launches, took_ns)


def test_a_session_without_a_rate_of_the_memory_is_not_judged() -> None:
    verdict = RULE.judge(Facts(gpu_step()))
    assert isinstance(verdict, CannotJudge) and "measure the memory" in verdict.reason
