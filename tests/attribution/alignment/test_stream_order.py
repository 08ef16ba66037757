"""A replay's launches are as written where its streams ran them in the order of the file."""

from __future__ import annotations

from profiler_ext.attribution.alignment.verification import StreamOrder
from profiler_ext.attribution.enclosing import EnclosingRanges
from profiler_ext.attribution.graph_calls import find_calls
from profiler_ext.attribution.trace.launches import find_launches
from profiler_ext.attribution.trace.nesting import nest
from tests.attribution.timeline import Timeline
from tests.handmade import Mark, trace


def replayed() -> list[Mark]:
    timeline = Timeline()
    with timeline.forward("fkey"):
        timeline.replay("first", "second", "third")
    return list(timeline.marks)


def is_in_trace_order(marks: list[Mark]) -> bool:
    events = trace(marks).events
    nesting = nest(events)
    enqueued = find_launches(events, nesting)
    [call] = find_calls(EnclosingRanges(events, nesting), enqueued)
    assert call.pattern.event_names == (("first",), ("second",), ("third",))
    order = StreamOrder(events, enqueued)
    assert not len(order.out_of_order_in(call.launches))
    return order.is_in_trace_order(call)


def test_a_replay_that_the_file_has_in_the_order_in_which_it_ran_is_as_written() -> None:
    assert is_in_trace_order(replayed())


def test_a_replay_of_which_the_file_has_a_later_launch_first_is_not() -> None:
    marks = replayed()
    first, second = (next(m for m in marks if m.name == name) for name in ("first", "second"))
    at, to = marks.index(first), marks.index(second)
    marks[at], marks[to] = second, first
    assert not is_in_trace_order(marks)
