"""Communication is exposed where nothing else runs, and waits until the last rank has come."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from profiler_ext.attribution.collectives import collectives_of
from profiler_ext.attribution.matched_collectives import MatchedCollectives, with_skew
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Interned, Thread
from profiler_ext.records.vocabulary import IdleCause, Scope
from tests.attribution.collectives import (
    ALL_REDUCE,
    analysed,
    collective,
    ran,
    step,
    step_time_breakdown,
)
from tests.handmade import Mark

MAIN, AUTOGRAD, WORKER = Thread(100, 100), Thread(100, 101), Thread(100, 102)


def reported(analysis: Analysis) -> list[tuple[str, str, int]]:
    found = analysis.communication
    return [
        (found.collective[row], found.process_group[row], int(found.exposed_ns[row]))
        for row in range(len(found))
    ]


def test_a_collective_that_began_first_hides_no_work() -> None:
    marks = [*collective(100, 500, 1), *ran("gemm", 200, 300, 2), *ran("gemm", 450, 600, 3)]
    analysis = analysed(step(0, 1000), *marks)
    assert step_time_breakdown(analysis) == {"communication": 250, "eager": 250, "idle": 100}
    assert reported(analysis) == [("allreduce", "dp", 250)]


def test_a_collective_that_work_covers_whole_is_overlapped() -> None:
    analysis = analysed(step(0, 1000), *ran("gemm", 100, 600, 1), *collective(200, 500, 2))
    assert step_time_breakdown(analysis) == {"eager": 500, "idle": 100}
    assert reported(analysis) == [("allreduce", "dp", 0)]


def test_two_collectives_at_once_are_exposed_once() -> None:
    analysis = analysed(step(0, 1000), *collective(100, 500, 1), *collective(300, 700, 2))
    assert step_time_breakdown(analysis) == {"communication": 600, "idle": 100}
    assert reported(analysis) == [("allreduce", "dp", 400), ("allreduce", "dp", 200)]


def test_work_without_length_within_a_collective_takes_nothing_of_it() -> None:
    analysis = analysed(step(0, 1000), *collective(100, 500, 1), *ran("gemm", 300, 300, 2))
    assert step_time_breakdown(analysis)["communication"] == 400


def test_a_kernel_alone_tells_its_collective_by_its_name() -> None:
    analysis = analysed(step(0, 1000), *ran(ALL_REDUCE, 100, 200, 1))
    assert reported(analysis) == [("allreduce", "", 100)]


def test_a_device_that_ran_nothing_but_a_collective_without_length_is_idle() -> None:
    wait = Mark("cudaStreamSynchronize", "cuda_runtime", MAIN, 300, 10)
    analysis = analysed(step(0, 1000), wait, *collective(100, 100, 1))
    assert step_time_breakdown(analysis) == {"idle": 100}
    assert reported(analysis) == [("allreduce", "dp", 0)]


# Ranks


def two(first: list[Mark], second: list[Mark], until_ns: int = 1000) -> tuple[Analysis, Analysis]:
    one = analysed(step(0, until_ns), *first)
    other = analysed(step(0, until_ns), *second, rank=1)
    reported = with_skew([one, other])
    return reported[0], reported[1]


def waiting(analysis: Analysis) -> list[tuple[int | None, int | None]]:
    found = analysis.communication
    columns = found.waiting_ns.tolist(), found.late_ns.tolist()
    return list(zip(*columns, strict=True))


def late(analysis: Analysis) -> list[tuple[int, str, int]]:
    found = analysis.rank_delay
    return [
        (int(found.launch[row]), found.cause[row], int(found.duration_ns[row]))
        for row in range(len(found))
    ]


def test_a_rank_waits_from_its_own_start_to_the_last_rank_s() -> None:
    first, second = two(collective(100, 510, 1), collective(400, 510, 1))
    assert waiting(first) == [(300, 0)]
    assert waiting(second) == [(0, 300)]
    assert late(first) == []


def test_a_rank_is_late_by_what_it_does_more_than_the_one_that_waits() -> None:
    """It computes when the other has done that already; but it began later."""
    first = [*ran("gemm", 50, 250, 2), *collective(250, 510, 1)]
    second = [*ran("gemm", 200, 400, 2), *collective(400, 510, 1)]
    _, other = two(first, second)
    assert late(other) == [(1, "launch_latency", 150)]


def test_a_rank_that_has_more_to_compute_is_late_by_that() -> None:
    first = [*ran("gemm", 50, 250, 2), *collective(250, 510, 1)]
    second = [*ran("gemm", 50, 400, 2), *collective(400, 510, 1)]
    _, other = two(first, second)
    assert late(other) == [(1, "", 150)]


def test_ranks_are_level_when_a_collective_is_over_that_held_both_up() -> None:
    """The second one computes longer before the first collective, and idles before the other."""
    first = [*ran("gemm", 10, 50, 3), *collective(50, 310, 1), *collective(400, 610, 2)]
    second = [*ran("gemm", 10, 250, 3), *collective(250, 310, 1), *collective(500, 610, 2)]
    one, other = two(first, second)
    assert waiting(one) == [(200, 0), (100, 0)]
    assert late(other) == [(1, "", 200), (2, "between_launches", 100)]


def test_a_rank_that_computes_while_it_waits_loses_nothing() -> None:
    first = [*collective(100, 510, 1), *ran("gemm", 150, 250, 2)]
    one, other = two(first, collective(400, 510, 1))
    assert (waiting(one), waiting(other)) == ([(300, 0)], [(0, 200)])
    assert sum(duration_ns for _, _, duration_ns in late(other)) == 200


def test_a_collective_that_no_other_rank_has_is_waited_for_by_nobody() -> None:
    first, second = two(collective(100, 510, 1), collective(400, 510, 3))
    assert waiting(first) == waiting(second) == [(None, None)]


def test_a_rank_whose_step_has_not_begun_is_outside_of_its_steps() -> None:
    one = analysed(step(0, 1000), *collective(100, 510, 1))
    other = analysed(step(350, 1000), *collective(400, 510, 1, called_ns=355), rank=1)
    _, second = with_skew([one, other])
    assert late(second) == [
        (0, "launch_latency", 44),
        (0, "launching", 1),
        (0, "outside_steps", 250),
        (0, "python", 5),
    ]


def test_ranks_are_compared_on_the_wall_clock() -> None:
    one = analysed(step(0, 1000), *collective(100, 510, 1))
    other = analysed(step(0, 1000), *collective(400, 510, 1), rank=1)
    moved = replace(other.recording.trace, base_ns=other.recording.trace.base_ns - 1000)
    other = replace(other, recording=replace(other.recording, trace=moved))
    first, second = with_skew([one, other])
    assert (waiting(first), waiting(second)) == ([(0, 110)], [(110, 0)])


def test_where_a_rank_of_the_group_is_missing_nothing_is_known() -> None:
    first, second = two(collective(100, 510, 1, ranks=4), collective(400, 510, 1, ranks=4))
    assert waiting(first) == waiting(second) == [(None, None)]


def test_where_the_last_rank_is_missing_the_others_waited_no_less() -> None:
    starts_ns = (100, 300, 450)
    ranks = [
        collectives_of(analysed(step(0, 1000), *collective(start, 510, 1, ranks=3), rank=rank))
        for rank, start in enumerate(starts_ns)
    ]
    whole, rest = MatchedCollectives(ranks), MatchedCollectives(ranks[:2])
    assert [whole.waited(rank).least_ns.tolist() for rank in range(3)] == [[350], [150], [0]]
    assert [rest.waited(rank).least_ns.tolist() for rank in range(2)] == [[200], [0]]
    assert [whole.waited(rank).waiting_ns.tolist() for rank in range(3)] == [[350], [150], [0]]
    assert [rest.waited(rank).waiting_ns.tolist() for rank in range(2)] == [[None], [None]]
    assert (list(whole.lasts()), list(rest.lasts()), list(rest.waits())) == ([(2, 0)], [], [])
    assert rest.delay_ns().tolist() == [0, 200]


def test_a_group_of_one_rank_is_whole_and_waits_for_nobody() -> None:
    first, second = two(collective(100, 510, 1, ranks=1), collective(400, 510, 2, ranks=1))
    assert waiting(first) == waiting(second) == [(0, 0)]


def test_a_group_whose_size_is_not_reported_may_have_ranks_that_are_missing() -> None:
    own = [
        collectives_of(analysed(step(0, 1000), *collective(start, 510, 1, ranks=None), rank=rank))
        for rank, start in enumerate((100, 400))
    ]
    (least,) = {
        tuple(MatchedCollectives(own, size).waited(0).least_ns.tolist()) for size in (0, 2, 3)
    }
    assert least == (300,)
    assert MatchedCollectives(own, 2).waited(0).waiting_ns.tolist() == [300]
    assert MatchedCollectives(own, 3).waited(0).waiting_ns.tolist() == [None]


def test_where_the_group_s_size_is_not_reported_it_is_all_ranks() -> None:
    first, _ = two(collective(100, 510, 1, ranks=None), collective(400, 510, 1, ranks=None))
    assert waiting(first) == [(300, 0)]


def test_what_may_begin_before_the_others_came_waits_for_nobody() -> None:
    names = [collective(start, 510, 1, name="broadcast") for start in (100, 400)]
    first, second = two(*names)
    assert waiting(first) == waiting(second) == [(None, None)]


# Whatever a trace holds, nothing is lost


def spans(most: int) -> st.SearchStrategy[tuple[int, int]]:
    pairs = st.tuples(st.integers(0, most), st.integers(0, most))
    return pairs.map(lambda pair: (min(pair), max(pair)))


def mark_of(category: str, names: list[str]) -> st.SearchStrategy[Mark]:
    threads = st.sampled_from([MAIN, AUTOGRAD, WORKER])
    return st.builds(
        lambda name, thread, span: Mark(name, category, thread, span[0], span[1] - span[0]),
        st.sampled_from(names),
        threads,
        spans(1000),
    )


CPU = st.one_of(
    mark_of(
        "cpu_op",
        [
            *("aten::mm", "aten::item", "MmBackward0", "gloo:all_reduce"),
            *("autograd::engine::evaluate_function: MmBackward0", "x (dynamo_timed)"),
        ],
    ),
    mark_of(
        "user_annotation", ["enumerate(DataLoader)#x.__next__", "## Call CompiledFxGraph f ##"]
    ),
    mark_of("cuda_runtime", ["cudaStreamSynchronize", "cudaMalloc", "cudaEventQuery"]),
    mark_of("overhead", ["Activity Buffer Request"]),
)


@st.composite
def launched(draw: st.DrawFn) -> list[list[Mark]]:
    found = []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        name = draw(st.sampled_from(["gemm", ALL_REDUCE]))
        category = (
            "kernel" if name == ALL_REDUCE else draw(st.sampled_from(["kernel", "gpu_memcpy"]))
        )
        device, stream = draw(st.integers(0, 1)), draw(st.sampled_from([7, 20]))
        (start, end), (begun, over) = draw(spans(1200)), draw(spans(1000))
        reported = {"correlation": number}
        on_device = reported | {"device": device, "stream": stream}
        thread = draw(st.sampled_from([MAIN, AUTOGRAD, WORKER]))
        call = Mark("cudaMemcpyAsync", "cuda_runtime", thread, begun, over - begun, reported)
        kernel = Mark(name, category, Thread(device, stream), start, end - start, on_device)
        found.append([kernel, *([call] if draw(st.booleans()) else [])])
    return found


@settings(max_examples=300, deadline=None)
@given(st.lists(CPU, max_size=12), launched(), st.integers(1, 900))
def test_idle_time_and_communication_add_up_in_any_trace(
    cpu: list[Mark], device: list[list[Mark]], middle: int
) -> None:
    steps = [
        Mark("ProfilerStep#1", "user_annotation", MAIN, 0, middle),
        Mark("ProfilerStep#2", "user_annotation", MAIN, middle, 1300 - middle),
    ]
    analysis = analysed(*steps, *cpu, *(mark for marks in device for mark in marks))
    found, launches = analysis.communication, analysis.launches
    duration = launches.duration_ns[found.launch]
    assert ((found.exposed_ns >= 0) & (found.exposed_ns <= duration)).all()
    first, last = (
        int(launches.start_ns.min()),
        int((launches.start_ns + launches.duration_ns).max()),
    )
    begin_ns, end_ns = analysis.steps[0].start_ns, analysis.steps[-1].end_ns
    if len(analysis.steps) == 2 and begin_ns <= first and last <= end_ns:
        in_breakdown = sum(
            line.duration_ns for line in analysis.breakdown if line.scope == Scope.COMMUNICATION
        )
        assert in_breakdown == int(found.exposed_ns.sum())
    assert set(causes(analysis.idle.cause)) <= set(IdleCause)


def causes(column: Interned) -> list[str]:
    return [column[row] for row in range(len(column))]
