"""Communication that nothing hides, and a rank that the others wait for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profiler_ext.findings import Confidence, Location, SavingPer
from profiler_ext.findings.rules import exposed_communication, late_rank
from profiler_ext.records.analysis import Analysis, Communication, Place, RankDelay
from tests.findings.stepping import MS, US, Script, is_silent, judged, only
from tests.handmade import interned, ints, masked

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def step(exposed_us: int, waiting_us: int | None, late_us: int | None) -> Analysis:
    """A step of a kernel and an all-reduce, of which this is known."""
    script = Script()
    script.launch("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT", 5 * MS, op="aten::mm")
    script.launch(NCCL, 5 * MS, op="c10d::allreduce_")
    script.wait()
    script.end_step()
    made = in_backward(script.analysis())
    waiting = None if waiting_us is None else waiting_us * US
    late = None if late_us is None else late_us * US
    communication = Communication(
        launch=ints([1]),
        collective=interned(["allreduce"]),
        process_group=interned(["0"]),
        exposed_ns=ints([exposed_us * US]),
        waiting_ns=masked([waiting]),
        late_ns=masked([late]),
    )
    return replace(made, communication=communication)


def in_backward(made: Analysis) -> Analysis:
    """The analysis, with all launches in the backward."""
    phase = interned(["backward"] * len(made.launches))
    return replace(made, launches=replace(made.launches, phase=phase))


def test_of_what_is_exposed_but_for_the_wait_for_another_rank_a_part_can_be_won() -> None:
    found = only(exposed_communication.RULE, step(5000, 1000, 0))
    assert found.est_saving_ns == int(0.6 * 4 * MS - 0.1 * 5 * MS)
    assert [each.value for each in found.evidence] == [1, 5 * MS, 5 * MS, MS, 5 * MS]
    assert (found.saving_per, found.confidence) == (SavingPer.STEP, Confidence.ESTIMATED)


def test_no_more_can_be_hidden_than_the_device_computes_by_itself() -> None:
    most = only(exposed_communication.RULE, step(50_000, 0, 0)).est_saving_ns
    assert most == int(0.6 * 5 * MS - 0.1 * 5 * MS)
    made = step(50_000, 0, 0)
    nothing = replace(made.launches, phase=interned(["other", "other"]))
    assert is_silent(exposed_communication.RULE, replace(made, launches=nothing))


def test_of_one_rank_alone_and_few_collectives_nothing_is_claimed() -> None:
    found = only(exposed_communication.RULE, step(5000, None, None))
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.UNKNOWN, 0)
    assert [each.value for each in found.evidence[2:4]] == [5 * MS, "one rank alone does not tell"]
    assert found.remedy.startswith("profiler-ext merge ")


def test_of_one_rank_alone_each_takes_no_longer_than_the_quickest_of_those_alike() -> None:
    took = [3 * MS, MS, 5 * MS, *[2 * MS] * 6]
    found = only(exposed_communication.RULE, alone(took))
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.STEP, 4_400 * US)
    assert found.confidence is Confidence.UPPER_BOUND


def alone(took: list[int], collective: str = "allreduce", elements: int | None = 4096) -> Analysis:
    """A step of all-reduces, or of others, after a product, of one rank alone."""
    script, size = Script(), {} if elements is None else {"In msg nelems": elements}
    for each in took:
        script.launch(NCCL, each, op="c10d::allreduce_", **size)
    script.launch("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT", 10 * MS, op="aten::mm")
    script.wait()
    script.end_step()
    communication = Communication(
        launch=np.arange(len(took), dtype=np.int64),
        collective=interned([collective] * len(took)),
        process_group=interned(["0"] * len(took)),
        exposed_ns=ints(took),
        waiting_ns=masked([None] * len(took)),
        late_ns=masked([None] * len(took)),
    )
    return replace(in_backward(script.analysis()), communication=communication)


def test_collectives_of_which_nobody_knows_the_size_are_not_compared() -> None:
    took = [9 * MS, *[MS] * 8]
    assert only(late_rank.RULE, alone(took)).summary.startswith("this rank waits")
    (unjudged,) = judged(late_rank.RULE, alone(took, elements=None)).rules_skipped
    assert unjudged.reason == "the sessions of all ranks together tell it: merge them"


def test_communication_next_to_which_something_runs_is_none() -> None:
    assert is_silent(exposed_communication.RULE, step(0, 0, 0))


def late(*rows: tuple[str, int, int]) -> Analysis:
    """The step, with what this rank did while the others waited: cause, line, microseconds."""
    spent = sum(took for _, _, took in rows)
    rank_delay = RankDelay(
        launch=ints([1] * len(rows)),
        cause=interned([cause for cause, _, _ in rows]),
        place=np.arange(len(rows), dtype=np.int32),
        duration_ns=ints([took * US for _, _, took in rows]),
        places=tuple(Place(file="/train.py", line=line, code="x") for _, line, _ in rows),
    )
    return replace(step(0, 0, spent), rank_delay=rank_delay)


def test_a_rank_that_comes_last_is_reported_with_what_it_did() -> None:
    found = only(late_rank.RULE, late(("python", 12, 600), ("", 30, 100), ("data_loader", 31, 50)))
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.UNKNOWN, 0)
    assert found.location == Location("/train.py", 12, "x")
    assert found.summary == "the other ranks wait for rank 0"
    assert [each.value for each in found.evidence] == [650 * US, 1, "Python between ops"]


def test_what_a_rank_does_outside_of_its_steps_computes_or_launches_is_none() -> None:
    for cause in ("outside_steps", "", "launching"):
        assert is_silent(late_rank.RULE, late((cause, 12, 600)))


def test_a_rank_that_is_never_last_is_none() -> None:
    assert is_silent(late_rank.RULE, step(800, 300, 0))


def test_of_one_rank_alone_nobody_knows_who_was_late() -> None:
    (unjudged,) = judged(late_rank.RULE, step(800, None, None)).rules_skipped
    assert unjudged.reason == "the sessions of all ranks together tell it: merge them"


def test_of_one_rank_alone_collectives_that_take_longer_than_equal_ones_say_that_it_waits() -> None:
    found = only(late_rank.RULE, alone([9 * MS, *[MS] * 8]))
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.UNKNOWN, 0)
    assert [each.value for each in found.evidence] == [9, 17 * MS, 8 * MS]
    assert found.remedy.startswith("profiler-ext merge ")
    assert judged(late_rank.RULE, alone([2 * MS, *[MS] * 8])).ranked == ()


def test_of_messages_merged_ranks_do_not_tell_who_came_last() -> None:
    found = only(late_rank.RULE, alone([9 * MS, *[MS] * 8], "send"))
    assert found.summary == "this rank waits for messages of other pipeline stages"
    assert found.remedy.startswith("more micro-batches")
