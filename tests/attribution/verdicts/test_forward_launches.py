"""A launch of an eager backward leads to the longest launch of the op that it differentiates."""

from __future__ import annotations

from profiler_ext.attribution.launches.eager import forward_launches
from profiler_ext.attribution.trace.launches import find_launches
from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.attribution.trace.nesting import nest
from tests.attribution.timeline import Timeline
from tests.handmade import ints, trace


def test_the_longest_launch_of_the_op_is_meant_and_what_launched_nothing_has_none() -> None:
    timeline = Timeline()
    with timeline.range("aten::linear"):
        timeline.op("aten::addmm", "short", "long")
    timeline.op("aten::view")
    timeline.op("aten::mm", "backward")
    timeline.op("aten::add", "other")
    events = trace(timeline.marks).events
    nesting = nest(events)
    enqueued = find_launches(events, nesting)
    row = {name: at for at, name in enumerate(mark.name for mark in timeline.marks)}
    linear, view = row["aten::linear"], row["aten::view"]
    durations = ints([10, 20, 5, 90])

    def found(forward: dict[int, int]) -> list[int]:
        return forward_launches(forward, nesting, enqueued, durations).tolist()

    assert found({2: linear}) == [NO_ROW, NO_ROW, 1, NO_ROW]
    assert found({2: linear, 3: view}) == [NO_ROW, NO_ROW, 1, NO_ROW]
    assert found({}) == [NO_ROW] * 4
