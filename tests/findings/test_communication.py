"""What a collective serves: gradients, FSDP's units, the next layer, each of many micro-batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profiler_ext.findings import SavingPer
from profiler_ext.findings.collectives import passes_of
from profiler_ext.findings.facts import Facts
from profiler_ext.findings.rules import exposed_communication, repeated_reduction
from profiler_ext.records.analysis import Analysis, Communication
from tests.findings.stepping import MS, US, Script, is_silent, judged, only
from tests.handmade import interned, ints, masked

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FORWARD, BACKWARD = ("forward", "mm", 10), ("backward", "mm", 20)
REDUCE = ("backward", "allreduce", 20)
Work = tuple[str, str, int]


def stepped(
    *work: Work, ranges: str = "", waiting_us: int | None = 0, is_exposed: bool = True
) -> Analysis:
    """Two steps of products and of collectives that nothing hides: phase, what, milliseconds."""
    script = Script()
    for _ in range(2):
        for _, what, took in work:
            _launch(script, what, took * MS, ranges)
        script.wait()
        script.end_step()
    made = script.analysis()
    rows = [at for at, (_, what, _) in enumerate(2 * work) if what != "mm"]
    communication = Communication(
        launch=ints(rows),
        collective=interned([(2 * work)[at][1] for at in rows]),
        process_group=interned(["0"] * len(rows)),
        exposed_ns=made.launches.duration_ns[rows] * is_exposed,
        waiting_ns=masked([None if waiting_us is None else waiting_us * US] * len(rows)),
        late_ns=masked([None] * len(rows)),
    )
    phase = interned([phase for phase, _, _ in 2 * work])
    launches = replace(made.launches, phase=phase)
    return replace(made, communication=communication, launches=launches)


def _launch(script: Script, what: str, took_ns: int, ranges: str) -> None:
    if what == "mm":
        script.launch("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT", took_ns, op="aten::mm")
        return
    begun, at = script.now_ns, len(script.marks)
    script.launch(NCCL, took_ns, op=f"c10d::{what}_", **{"In msg nelems": took_ns, "dtype": "bf16"})
    if ranges:
        outer = replace(script.marks[at], name=ranges, category="user_annotation")
        script.marks.insert(at, replace(outer, start_ns=begun, duration_ns=script.now_ns - begun))


def test_a_pass_begins_with_a_forward_that_takes_more_than_a_moment() -> None:
    scaled = ("forward", "mm", 1)
    found = passes_of(Facts(stepped(FORWARD, BACKWARD, FORWARD, BACKWARD, scaled, REDUCE)))
    assert found.number.tolist() == 2 * [0, 0, 1, 1, 1, 1]
    assert set(found.count.tolist()) == {2}
    assert found.in_forward.tolist() == 2 * [True, False, True, False, False, False]


def test_gradients_that_are_reduced_after_the_backward_can_be_hidden_in_it() -> None:
    found = only(exposed_communication.RULE, stepped(FORWARD, BACKWARD, REDUCE))
    assert found.est_saving_ns == int(0.6 * 20 * MS - 0.1 * 20 * MS)
    assert "bucket" in found.remedy


def test_what_the_next_layer_waits_for_the_other_half_of_the_batch_can_hide() -> None:
    summed, again = ("forward", "allreduce", 20), ("backward", "allreduce", 20)
    work = (FORWARD, summed, FORWARD, BACKWARD, again, BACKWARD)
    found = only(exposed_communication.RULE, stepped(*work))
    assert found.est_saving_ns == int(0.6 * 40 * MS - 0.1 * 60 * MS)
    assert [each.value for each in found.evidence] == [2, 40 * MS, 40 * MS, 0, 60 * MS]
    assert "halves of the batch" in found.remedy
    assert is_silent(exposed_communication.RULE, stepped(*work, waiting_us=None))


def test_what_fsdp_gathers_can_be_hidden_in_the_pass_that_needs_it() -> None:
    gather, reduce = ("forward", "_allgather_base", 3), ("backward", "_reduce_scatter_base", 3)
    work = [part for _ in range(4) for part in (gather, FORWARD)]
    work += [part for _ in range(4) for part in (BACKWARD, reduce)]
    assert is_silent(exposed_communication.RULE, stepped(*work, ranges="FSDP::all_gather (0)"))
    slow = [(phase, what, 10 if what == "_allgather_base" else took) for phase, what, took in work]
    gathers = only(exposed_communication.RULE, stepped(*slow, ranges="FSDP::all_gather (0)"))
    assert gathers.est_saving_ns == int(0.6 * 40 * MS - 0.1 * 40 * MS)
    assert "set_modules_to_forward_prefetch" in gathers.remedy


def test_of_fsdp_in_one_unit_nothing_is_claimed() -> None:
    gather, reduce = ("forward", "_allgather_base", 30), ("backward", "_reduce_scatter_base", 30)
    computed = [*3 * [FORWARD], *3 * [("backward", "mm", 10)]]
    made = stepped(gather, *computed, reduce, ranges="FSDP::all_gather")
    found = judged(exposed_communication.RULE, made).ranked
    assert [(each.saving_per, each.est_saving_ns) for each in found] == 2 * [(SavingPer.UNKNOWN, 0)]
    assert all("fully_shard" in each.remedy for each in found)


def test_gradients_that_each_micro_batch_reduces_are_reported_but_for_the_last_ones() -> None:
    made = stepped(*3 * [FORWARD, BACKWARD, REDUCE], waiting_us=500)
    found = only(repeated_reduction.RULE, made)
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.STEP, 2 * 19_500 * US)
    assert [each.value for each in found.evidence] == [3, 3, 60 * MS, 60 * MS, 1500 * US]
    assert "no_sync" in found.remedy
    assert is_silent(exposed_communication.RULE, made)


def test_gradients_that_the_last_micro_batch_alone_reduces_can_be_hidden_in_its_backward() -> None:
    made = stepped(*2 * [FORWARD, BACKWARD], ("backward", "allreduce", 30))
    assert is_silent(repeated_reduction.RULE, made)
    found = only(exposed_communication.RULE, made)
    assert found.est_saving_ns == int(0.6 * 20 * MS - 0.1 * 20 * MS)


def test_of_one_rank_alone_and_few_collectives_no_time_is_claimed() -> None:
    found = only(
        repeated_reduction.RULE, stepped(*2 * [FORWARD, BACKWARD, REDUCE], waiting_us=None)
    )
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.UNKNOWN, 0)


def test_gradients_reduced_too_often_next_to_other_work_save_nothing() -> None:
    often = 3 * [FORWARD, BACKWARD, REDUCE]
    found = only(repeated_reduction.RULE, stepped(*often, is_exposed=False))
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.UNKNOWN, 0)
    few = 3 * [FORWARD, BACKWARD, ("backward", "allreduce", 4)]
    assert is_silent(repeated_reduction.RULE, stepped(*few, is_exposed=False))


def test_what_each_forward_needs_is_no_gradient_that_is_reduced_too_often() -> None:
    summed = ("forward", "allreduce", 8)
    made = stepped(*2 * [FORWARD, summed, FORWARD, BACKWARD])
    assert is_silent(repeated_reduction.RULE, made)


def test_a_step_that_communicates_nothing_cannot_be_judged() -> None:
    made = stepped(FORWARD, BACKWARD)
    (unjudged,) = judged(repeated_reduction.RULE, made).rules_skipped
    assert unjudged.reason == "no rank communicates in this session"
    assert not np.any(passes_of(Facts(made)).number)
