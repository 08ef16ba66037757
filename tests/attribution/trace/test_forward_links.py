"""From a backward event to its forward: numbers, threads, ids that are given again, arrows."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_ext.attribution.trace.forward_links import ForwardLinks
from profiler_ext.kineto.flow_events import ForwardFlow
from profiler_ext.records.events import Thread
from tests.handmade import Mark, ints, trace

ONE, OTHER = Thread(1, 10), Thread(1, 11)


def op(thread: Thread, start: int, number: int, fwd_thread: int = 0) -> Mark:
    args = {"Sequence number": number, "Fwd thread id": fwd_thread}
    return Mark("op", "cpu_op", thread, start, 5, args)


def links(
    forward: list[Mark], backward: list[Mark], flows: tuple[ForwardFlow, ...] = ()
) -> list[int | None]:
    """The forward row of each backward."""
    asked: list[int] = []

    def reported() -> Iterator[ForwardFlow]:
        asked.append(1)
        return iter(flows)

    rows = list(range(len(forward), len(forward) + len(backward)))
    events = trace([*forward, *backward]).events
    found = ForwardLinks(events, ints(range(len(forward))), ints(rows), None, reported)
    return [found.forward_of(row) for row in rows]


def test_the_last_op_with_a_number_made_the_node() -> None:
    assert links([op(ONE, 0, 5), op(ONE, 10, 5)], [op(ONE, 100, 5, 1)]) == [1]


def test_a_thread_is_learnt_from_a_number_that_only_it_has() -> None:
    forward = [op(ONE, 0, 5), op(OTHER, 0, 5), op(OTHER, 10, 6)]
    assert links(forward, [op(ONE, 100, 5, 2), op(ONE, 110, 6, 2)]) == [1, 2]


def test_of_a_thread_s_id_that_is_given_again_the_op_before_the_backward_counts() -> None:
    forward = [op(ONE, 0, 5), op(ONE, 200, 5)]
    assert links(forward, [op(ONE, 100, 5, 1), op(ONE, 300, 5, 2)]) == [0, 1]


def test_where_all_numbers_are_those_of_several_threads_arrows_tell_and_else_nothing() -> None:
    forward = [op(ONE, 0, 5), op(OTHER, 0, 5)]
    backward = [op(ONE, 100, 5, 1), op(OTHER, 100, 5, 2)]
    flows = (ForwardFlow(ONE, ONE, 100), ForwardFlow(OTHER, OTHER, 100))
    assert links(forward, backward) == [None, None]
    assert links(forward, backward, flows) == [0, 1]
    disputed = (*flows, ForwardFlow(OTHER, ONE, 100))
    assert links(forward, backward, disputed) == [None, 1]
