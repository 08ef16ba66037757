"""Each rule about launches has a step with its flaw, and a neighbour without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import profiler_ext
from profiler_ext.attribution.one_step import of_step
from profiler_ext.findings import RULES, Rule, SavingPer
from profiler_ext.findings.facts import facts_of
from profiler_ext.findings.rules import (
    dtype_conversion,
    exposed_copy,
    fp32_matmul,
    layout_conversion,
    pageable_copy,
    recompute,
    replay_copy,
)
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.records.vocabulary import Phase
from tests.analyses import cpu_step
from tests.attribution.recordings import FIXTURES
from tests.findings.stepping import (
    CPU,
    MS,
    STREAM,
    US,
    Script,
    at,
    forward,
    is_silent,
    judged,
    made,
    only,
    placed,
)
from tests.handmade import Mark, interned

SGEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_tn_align1>"
TF32 = "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_stage3_tensor16x8x8_kernel"
GEMV = "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>"
NCHW = "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false>"


def step(kernel: str, op: str = "aten::mm", paced: bool = True, count: int = 2) -> Analysis:
    """A step whose kernels queue up, or come one by one; the last is another op's."""
    script = Script()
    for _ in range(count):
        script.launch(kernel, 400 * US if paced else 2 * US, op=op)
    script.launch("vectorized_elementwise_kernel", 400 * US if paced else 2 * US)
    if paced:
        script.wait()
    else:
        script.now_ns += 10 * MS
        script.launch("vectorized_elementwise_kernel", 2 * US)
        script.wait()
    script.end_step()
    return script.analysis()


def test_products_in_fp32_lose_three_quarters_of_their_time() -> None:
    found = only(fp32_matmul.RULE, step(SGEMM))
    assert (found.est_saving_ns, found.location.kernel) == (600 * US, SGEMM)
    assert [each.value for each in found.evidence] == [800 * US, 2, 4]


def test_products_of_factorizations_stay_in_fp32() -> None:
    # With TF32 allowed, LU, QR and Cholesky took as long; solve_triangular was faster
    assert is_silent(fp32_matmul.RULE, step(SGEMM, "aten::linalg_lu_factor_ex"))
    assert only(fp32_matmul.RULE, step(SGEMM, "aten::linalg_solve_triangular"))


@pytest.mark.parametrize(
    "kernel",
    [
        TF32,
        GEMV,
        "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT",
        "void gemmSN_NN_kernel<float, 128, 2, 4, 8, 3, 4>(cublasGemmSmallNParams<float>)",
    ],
)
def test_products_on_tensor_cores_and_with_vectors_are_none(kernel: str) -> None:
    assert is_silent(fp32_matmul.RULE, step(kernel))


def test_where_the_device_waits_for_the_cpu_a_faster_kernel_wins_nothing() -> None:
    assert is_silent(fp32_matmul.RULE, step(SGEMM, paced=False))


def test_a_launch_that_goes_saves_the_cpu_its_cost_where_the_cpu_is_behind() -> None:
    script = Script()
    for number in range(50):
        op = "aten::to" if number % 5 == 0 else "aten::mul"
        script.launch("unrolled_elementwise_kernel", 2 * US, op=op)
    script.end_step()
    made = placed(script.analysis(), to={"code": "y = self.up(x)"})
    # Ten conversions that the CPU takes 10 us for; the first is the first launch of all.
    assert only(dtype_conversion.RULE, made).est_saving_ns == 9 * int(10 * US / 1.45)


def test_of_a_conversion_the_op_around_the_copy_goes_too() -> None:
    script = Script()
    for _ in range(10):
        around = Mark("aten::_to_copy", "cpu_op", CPU, script.now_ns, 14 * US)
        script.marks.append(around)
        script.launch("bfloat16_copy_kernel_cuda", 2 * US, op="aten::copy_")
        script.now_ns += 20 * US
    script.end_step()
    made = placed(script.analysis(), _to_copy={"code": "y = self.up(x)"})
    # The ops take 10 and 14 us of the 30 us between two launches.
    assert only(dtype_conversion.RULE, made).est_saving_ns == 9 * int(14 * US / 1.45)


def test_changes_of_layout_are_reported_by_their_kernels() -> None:
    assert only(layout_conversion.RULE, step(NCHW)).est_saving_ns == 800 * US
    assert is_silent(layout_conversion.RULE, step(SGEMM))


def test_changes_of_layout_that_group_norms_ask_for_remain() -> None:
    for norm, is_kept in (("group_norm", True), ("batch_norm", False)):
        launches = [forward("cudnn_convolution", NCHW), forward(norm), forward("silu")]
        places = {"cudnn_convolution": at(3), norm: at(4), "silu": at(5)}
        assert is_silent(layout_conversion.RULE, made(*launches, **places)) == is_kept
    of_rows = made(forward("conv1d", NCHW), conv1d=at(3, "conv1d"))
    assert only(layout_conversion.RULE, of_rows).remedy.startswith("nn.Conv2d of height 1")


def test_an_op_that_stays_without_a_change_of_layout_saves_the_cpu_a_call() -> None:
    script = Script()
    for _ in range(50):
        begin_ns = script.now_ns
        for kernel in (NCHW, "sm90_xmma_fprop_implicit_gemm_bf16bf16"):
            script.launch(kernel, 2 * US, op="aten::part", cost_ns=12 * US)
        del script.marks[-3], script.marks[-5]  # the parts: both launches are of one op
        span = CPU, begin_ns, script.now_ns - begin_ns
        script.marks.append(Mark("aten::cudnn_convolution", "cpu_op", *span))
    script.end_step()
    # A quarter of 12 us is the call; the first launch of all has none before it.
    found = only(layout_conversion.RULE, script.analysis())
    assert found.est_saving_ns == 49 * int(3 * US / 1.45)


def test_batch_norms_next_to_changes_of_layout_lose_two_thirds_of_their_time() -> None:
    script = Script()
    script.launch(NCHW, 400 * US)
    script.launch("void at::native::batch_norm_backward_kernel<float, float, float, int>", 3 * MS)
    script.launch("void at::native::batch_norm_backward_reduce_channels_last_kernel<4>", 3 * MS)
    script.wait()
    script.end_step()
    found = only(layout_conversion.RULE, script.analysis())
    assert (found.est_saving_ns, found.evidence[2].value) == (400 * US + 2 * MS, 3 * MS)


def test_a_conversion_counts_where_the_line_asks_for_none() -> None:
    made = step("unrolled_elementwise_kernel", op="aten::to")
    unasked = placed(made, to={"file": "/m.py", "line": 3, "code": "y = self.up(x)"})
    found = only(dtype_conversion.RULE, unasked)
    assert (found.est_saving_ns, found.location.line) == (800 * US, 3)
    for code in ("y = x.to(torch.bfloat16)", "y = x.float()", None):
        assert is_silent(dtype_conversion.RULE, placed(made, to={"code": code}))


def test_the_conversions_of_another_large_line_are_a_finding_of_their_own() -> None:
    script = Script()
    for op, count in (("to", 3), ("_to_copy", 2), ("mul", 5)):
        for _ in range(count):
            script.launch("unrolled_elementwise_kernel", 400 * US, op=f"aten::{op}")
    script.wait()
    script.end_step()
    codes = {"code": "y = self.up(x)", "file": "/m.py"}
    made = placed(script.analysis(), to=codes | {"line": 3}, _to_copy=codes | {"line": 9})
    found = judged(dtype_conversion.RULE, made).ranked
    assert [(each.location.line, each.est_saving_ns) for each in found] == [
        (3, 1200 * US),
        (9, 800 * US),
    ]


def test_a_checkpoint_is_reported_by_the_library_calls_that_run_again() -> None:
    made = placed(step("nvjet_sm90_tst_128x64"), mm={"phase": Phase.RECOMPUTE})
    assert only(recompute.RULE, made).est_saving_ns == 800 * US


def test_a_checkpoint_costs_the_python_that_leaves_it_too() -> None:
    script = Script()
    for _ in range(3):
        for _ in range(20):
            script.launch("nvjet_sm90_tst_128x64", 2 * US, op="aten::mm")
            script.now_ns += 90 * US
            script.launch("vectorized_elementwise_kernel", 2 * US, op="aten::mul")
        script.end_step()
    made = placed(script.analysis(), mm={"phase": Phase.RECOMPUTE})
    # Of 110 us of each round the next op's 10 us are left, all 1.45 times as fast unrecorded
    assert only(recompute.RULE, made).est_saving_ns == pytest.approx(20 * 100 * US / 1.45, rel=0.05)


def test_what_the_compiler_recomputes_in_its_own_kernels_is_none() -> None:
    made = placed(step("triton_poi_fused_gelu_0"), mm={"phase": Phase.RECOMPUTE})
    kinds = interned(["triton"] * len(made.launches))
    made = replace(made, launches=replace(made.launches, kind=kinds))
    assert is_silent(recompute.RULE, made)


def replayed(phases: list[str], evidence: list[str]) -> Analysis:
    """A step of three launches of 400 us that a graph's runner ran before replays."""
    made = step("multi_tensor_apply_kernel", op="aten::_foreach_copy_")
    changed = replace(made.launches, evidence=interned(evidence), phase=interned(phases))
    return replace(made, launches=changed)


def test_copies_and_seeds_before_a_replay_are_counted_apart() -> None:
    kinds = ["graph_runner_input_copy", "graph_runner_seed", "launching_op"]
    found = only(replay_copy.RULE, replayed(["forward"] * 3, kinds))
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.STEP, 400 * US)
    assert [each.value for each in found.evidence] == [1, 1, 800 * US, "an input of unknown size"]
    assert "mark_static_address" in found.remedy


def test_what_eager_code_hands_to_a_backward_has_a_remedy_of_its_own() -> None:
    kinds = ["graph_runner_input_copy", "launching_op", "graph_runner_input_copy"]
    found = judged(replay_copy.RULE, replayed(["forward", "other", "backward"], kinds)).ranked
    assert [each.evidence[2].value for each in found] == [400 * US, 400 * US]
    assert ["the loss" in each.remedy for each in found] == [False, True]
    assert [each.saving_per for each in found] == [SavingPer.STEP, SavingPer.UNKNOWN]


def test_a_copy_of_one_number_has_no_remedy_and_is_none() -> None:
    """The gradient that ``backward()`` makes for the loss is copied for each replay."""
    recorded = FIXTURES / "cases" / "cudagraphs.session.pt.trace.json.gz"
    every = profiler_ext.load(recorded).analysis
    made = of_step(every, every.steps[-1].number)
    assert is_silent(replay_copy.RULE, made)
    graphs = tuple(map(larger, made.recording.graphs))
    found = only(replay_copy.RULE, replace(made, recording=replace(made.recording, graphs=graphs)))
    assert found.evidence[-1].value == "float32 of 8 by 4"
    assert found.evidence[-2].name == "CPU launch overhead"


def test_what_launching_a_forward_s_copies_costs_has_no_remedy_and_is_none() -> None:
    """Two copies of 8 by 256 tokens take 3 us; a batch that is copied in place is launched too."""
    recorded = FIXTURES / "worked" / "infer_graphs.session.pt.trace.json.gz"
    assert is_silent(replay_copy.RULE, profiler_ext.load(recorded).analysis)


def larger(graph: GraphInstance) -> GraphInstance:
    """Return a graph as if each single number in it were more."""
    nodes = tuple(
        replace(node, outputs=tuple(replace(o, size=o.size or (8, 4)) for o in node.outputs))
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def test_copies_that_no_replay_asked_for_are_none_of_a_replay() -> None:
    assert is_silent(replay_copy.RULE, step("multi_tensor_apply_kernel"))


def copying(kernel: str) -> Analysis:
    script = Script()
    for _ in range(3):
        script.launch(
            kernel,
            2 * MS,
            op="aten::to",
            cost_ns=8 * MS,
            category="gpu_memcpy",
            call="cudaMemcpyAsync",
            bytes=16_000_000,
        )
        script.wait()
        script.end_step()
    return script.analysis()


def test_pageable_copies_cost_the_time_of_their_calls() -> None:
    found = only(pageable_copy.RULE, copying("Memcpy HtoD (Pageable -> Device)"))
    assert (found.est_saving_ns, [each.value for each in found.evidence]) == (
        2 * MS,
        [1, 16_000_000, 2 * MS],
    )
    assert is_silent(pageable_copy.RULE, copying("Memcpy HtoD (Pinned -> Device)"))


def test_what_modules_copy_to_the_device_in_each_call_belongs_there() -> None:
    step = placed(copying("Memcpy HtoD (Pageable -> Device)"), to=at(3, module="blocks.0"))
    found = only(pageable_copy.RULE, step)
    assert (found.est_saving_ns, found.location.line) == (2 * MS, 3)
    assert found.remedy.startswith("keep them on the device")
    step = placed(copying("Memcpy HtoD (Pinned -> Device)"), to=at(3, module="blocks.0"))
    assert only(exposed_copy.RULE, step).remedy == found.remedy


def test_copies_of_batches_and_of_modules_are_two_findings() -> None:
    script = Script()
    for _ in range(3):
        for op in ("aten::to", "aten::_to_copy"):
            memory = {"category": "gpu_memcpy", "call": "cudaMemcpyAsync", "cost_ns": 8 * MS}
            script.launch("Memcpy HtoD (Pageable -> Device)", 2 * MS, op=op, **memory)
        script.wait()
        script.end_step()
    step = placed(script.analysis(), _to_copy=at(3, module="blocks.0"))
    first, second = judged(pageable_copy.RULE, step).ranked
    assert (first.est_saving_ns, second.est_saving_ns) == (2 * MS, 2 * MS)
    assert {first.location.module, second.location.module} == {None, "blocks.0"}


def prefetched(copy_ns: int, stream: int) -> Analysis:
    script = Script()
    for _ in range(4):
        script.launch(
            "Memcpy HtoD (Pinned -> Device)",
            copy_ns,
            op="aten::to",
            category="gpu_memcpy",
            call="cudaMemcpyAsync",
            bytes=16_000_000,
            stream=stream,
        )
        for _ in range(10):
            script.launch("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT", 100 * US, op="aten::mm")
        script.wait()
        script.end_step()
    return script.analysis()


def test_a_pinned_copy_in_front_of_its_kernels_delays_them() -> None:
    found = only(exposed_copy.RULE, prefetched(200 * US, stream=7))
    assert (found.est_saving_ns, found.confidence.value) == (200 * US, "upper_bound")
    assert found.evidence[-1].value == 16_000_000


def test_a_short_copy_and_one_on_a_stream_of_its_own_are_none() -> None:
    assert is_silent(exposed_copy.RULE, prefetched(20 * US, stream=7))
    assert is_silent(exposed_copy.RULE, prefetched(200 * US, stream=9))


def test_a_call_that_waits_for_what_the_device_was_given_before_holds_nothing_up() -> None:
    script = Script()
    for _ in range(2):
        script.launch("vectorized_elementwise_kernel", 5 * MS)
        # In the call from 4.01 to 6.01 ms; the device has run what it was given at 5.01 ms.
        script.launch(
            "Memcpy HtoD (Pageable -> Device)",
            2 * MS,
            op="aten::to",
            cost_ns=8 * MS,
            category="gpu_memcpy",
            call="cudaMemcpyAsync",
        )
        script.wait()
        script.end_step()
    found = only(pageable_copy.RULE, script.analysis())
    assert (found.est_saving_ns, found.evidence[2].value) == (MS, 2 * MS)


def awaited(memory: str) -> Analysis:
    """Steps of three copies, each behind kernels that take longer than their launches."""
    script = Script()
    for _ in range(4):
        for number in range(3):
            for _ in range(20):
                script.launch("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT", 14 * US, op="aten::mm")
            begin_ns, start_ns = script.now_ns, max(script.free_ns, script.now_ns + 5 * US)
            script.free_ns = start_ns + 2 * US
            script.now_ns = script.free_ns + 5 * US if memory == "Pageable" else begin_ns + 10 * US
            span_ns = script.now_ns - begin_ns
            ids = {"correlation": 10_000 + len(script.marks) + number}
            call = Mark(
                "cudaMemcpyAsync", "cuda_runtime", CPU, begin_ns + US, span_ns - 2 * US, ids
            )
            name, place = f"Memcpy HtoD ({memory} -> Device)", {"device": 0, "stream": 7}
            copy = Mark(name, "gpu_memcpy", STREAM, start_ns, 2 * US, ids | place)
            script.marks += [Mark("aten::to", "cpu_op", CPU, begin_ns, span_ns), call, copy]
        script.end_step()
    return script.analysis()


def test_copies_for_which_the_cpu_waits_cost_the_lead_that_it_had() -> None:
    found = only(pageable_copy.RULE, awaited("Pageable"))
    # Launching 20 kernels takes the CPU less than running them: without waits it is ahead
    pinned_ns = facts_of(awaited("Pinned")).step_ns
    lost_ns = facts_of(awaited("Pageable")).step_ns - pinned_ns
    assert lost_ns == pytest.approx(41 * US, rel=0.02)
    assert found.est_saving_ns == pytest.approx(lost_ns, rel=0.25)
    assert is_silent(pageable_copy.RULE, awaited("Pinned"))


@pytest.mark.parametrize("rule", RULES, ids=lambda each: each.name)
def test_of_a_step_on_the_cpu_a_rule_says_nothing_or_what_it_lacks(rule: Rule) -> None:
    findings = judged(rule, cpu_step())
    assert findings.ranked == ()
    assert all(each.reason and not each.reason.endswith(".") for each in findings.rules_skipped)


@pytest.mark.parametrize("rule", RULES, ids=lambda each: each.name)
def test_a_step_without_a_flaw_has_no_finding(rule: Rule) -> None:
    script = Script()
    for _ in range(4):
        for _ in range(30):
            script.launch("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT", 100 * US, op="aten::mm")
        script.end_step()
    assert np.all(script.analysis().launches.duration_ns == 100 * US)
    assert judged(rule, script.analysis()).ranked == ()
