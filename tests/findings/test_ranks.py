"""Communication that nothing hides, and a rank that the others wait for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profiler_ext.findings import Stake, Sureness, Where
from profiler_ext.findings.rules import exposed_communication, late_rank
from profiler_ext.records import Analysis, Communication, Device, Lateness, Place
from tests.findings.stepping import MS, US, Script, is_silent, judged, only
from tests.handmade import interned, ints, masked

Properties = tuple[tuple[str, str], ...]
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def step(exposed_us: int, waiting_us: int | None, late_us: int | None) -> Analysis:
    """A step of a kernel and an all-reduce of a millisecond, of which this is known."""
    script = Script()
    script.launch("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT", 5 * MS, op="aten::mm")
    script.launch(NCCL, MS, op="c10d::allreduce_")
    script.wait()
    script.end_step()
    made = script.analysis()
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


def test_what_is_exposed_is_at_stake_but_for_the_wait_for_another_rank() -> None:
    found = only(exposed_communication.RULE, step(800, 300, 0))
    assert found.at_stake_ns == 500 * US
    assert [each.value for each in found.why] == [1, MS, 800 * US, 300 * US, 0]
    assert (found.stake, found.sureness) == (Stake.STEP, Sureness.ESTIMATED)


def test_of_one_rank_alone_and_few_collectives_nothing_is_claimed() -> None:
    found = only(exposed_communication.RULE, step(800, None, None))
    assert (found.stake, found.at_stake_ns) == (Stake.UNKNOWN, 0)
    assert [each.value for each in found.why[2:4]] == [800 * US, "one rank alone does not tell"]
    assert found.remedy.startswith("merge the sessions of all ranks")


def test_of_one_rank_alone_each_takes_no_longer_than_the_quickest_of_those_alike() -> None:
    took = [3 * MS, MS, 5 * MS, *[2 * MS] * 6]
    found = only(exposed_communication.RULE, alone(took))
    assert (found.stake, found.at_stake_ns) == (Stake.STEP, 9 * MS)
    assert found.sureness is Sureness.UPPER_BOUND


def test_what_would_compute_more_slowly_beside_a_collective_is_not_won() -> None:
    properties = (("numSms", "132"),)
    for blocks, part in ((24, 1 - 4 * 24 / 132), (2, 1 - 4 * 2 / 132)):
        made = alone([2 * MS] * 9, grid=(blocks, 1, 1), properties=properties)
        found = only(exposed_communication.RULE, made)
        assert found.at_stake_ns == sum(int(2 * MS * part) for _ in range(9))
        assert found.why[-1].value == blocks / 132
    assert is_silent(exposed_communication.RULE, alone([2 * MS] * 9, (40, 1, 1), properties))


def alone(
    took: list[int], grid: tuple[int, ...] = (1, 1, 1), properties: Properties = ()
) -> Analysis:
    """A step of all-reduces in a queue, of one rank alone, which run while nothing else does."""
    script = Script()
    for each in took:
        script.launch(NCCL, each, op="c10d::allreduce_", grid=list(grid))
    script.wait()
    script.end_step()
    made = script.analysis()
    trace = replace(made.recording.trace, devices=(Device(0, "NVIDIA H200", properties),))
    communication = Communication(
        launch=np.arange(len(took), dtype=np.int64),
        collective=interned(["allreduce"] * len(took)),
        process_group=interned(["0"] * len(took)),
        exposed_ns=ints(took),
        waiting_ns=masked([None] * len(took)),
        late_ns=masked([None] * len(took)),
    )
    recording = replace(made.recording, trace=trace)
    return replace(made, communication=communication, recording=recording)


def test_communication_beside_which_something_runs_is_none() -> None:
    assert is_silent(exposed_communication.RULE, step(0, 0, 0))


def late(*rows: tuple[str, int, int]) -> Analysis:
    """The step, with what this rank did while the others waited: cause, line, microseconds."""
    spent = sum(took for _, _, took in rows)
    lateness = Lateness(
        launch=ints([1] * len(rows)),
        cause=interned([cause for cause, _, _ in rows]),
        place=np.arange(len(rows), dtype=np.int32),
        duration_ns=ints([took * US for _, _, took in rows]),
        places=tuple(Place(file="/train.py", line=line, code="x") for _, line, _ in rows),
    )
    return replace(step(0, 0, spent), lateness=lateness)


def test_a_rank_that_comes_last_is_told_with_what_it_did() -> None:
    found = only(late_rank.RULE, late(("python", 12, 600), ("", 30, 100), ("data_loader", 31, 50)))
    assert (found.stake, found.at_stake_ns) == (Stake.UNKNOWN, 0)
    assert found.where == Where("/train.py", 12, "x")
    assert found.what == "the other ranks wait for rank 0"
    assert [each.value for each in found.why] == [650 * US, 1, "Python between ops"]


def test_what_a_rank_does_outside_of_its_steps_computes_or_launches_is_none() -> None:
    for cause in ("outside_steps", "", "launching"):
        assert is_silent(late_rank.RULE, late((cause, 12, 600)))


def test_a_rank_that_is_never_last_is_none() -> None:
    assert is_silent(late_rank.RULE, step(800, 300, 0))


def test_of_one_rank_alone_nobody_knows_who_was_late() -> None:
    (unjudged,) = judged(late_rank.RULE, step(800, None, None)).unjudged
    assert unjudged.why == "the sessions of all ranks together tell it: merge them"
