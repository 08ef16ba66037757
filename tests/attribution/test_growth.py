"""What is worked out for equal calls, launches and tables is worked out once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from profiler_ext.attribution import attribute
from profiler_ext.attribution.alignment import invocations
from profiler_ext.attribution.graph_calls import Patterns
from profiler_ext.attribution.launches import compiled
from profiler_ext.attribution.launches.compiled import CompiledAttributor
from profiler_ext.attribution.launches.eager import EagerAttributor
from profiler_ext.attribution.trace.forward_links import ForwardLinks
from profiler_ext.records.events import Ints, RawEvents
from profiler_ext.records.recording import Recording
from tests import frames as tables
from tests.analyses import gpu_step
from tests.attribution.graphs import graph
from tests.attribution.small_graph import NODES, SITES, launch_all
from tests.attribution.timeline import Timeline


def calls(count: int) -> Recording:
    timeline = Timeline()
    for _ in range(count):
        with timeline.forward("fkey"):
            launch_all(timeline)
        with timeline.forward("unknown"):
            timeline.triton("triton_poi_fused_mul_0")
        with timeline.range("aten::add"):
            timeline.launch("add_kernel")
    return timeline.recording(graph(NODES, SITES))


def counting(
    monkeypatch: pytest.MonkeyPatch, counts: Counter[str], owner: object, name: str
) -> None:
    plain = getattr(owner, name)

    def counted(*args, **kwargs):
        counts[name] += 1
        return plain(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)


def test_equal_calls_are_aligned_checked_and_judged_once(monkeypatch):
    counts = Counter[str]()
    counting(monkeypatch, counts, invocations, "align")
    counting(monkeypatch, counts, compiled, "contradicted")
    counting(monkeypatch, counts, Patterns, "_new")
    counting(monkeypatch, counts, CompiledAttributor, "_gap_outcome")
    counting(monkeypatch, counts, EagerAttributor, "_outcome")
    found = []
    for count in (2, 20):
        counts.clear()
        assert len(attribute(calls(count)).launches) == 6 * count
        found.append(dict(counts))
    assert found[0] == found[1]
    assert found[0]["_new"] == 2


def test_a_forward_is_searched_among_those_of_its_number_and_not_gone_through(monkeypatch):
    seen = Counter[int]()
    plain = ForwardLinks._candidates

    class Starts:
        def __init__(self, starts):
            self.starts = starts

        def __getitem__(self, row):
            seen[len(self.starts)] += 1
            return self.starts[row]

        def item(self, row):
            seen[len(self.starts)] += 1
            return self.starts.item(row)

    def watched(self, row):
        if not isinstance(self._starts, Starts):
            self._starts = Starts(self._starts)
        return plain(self, row)

    monkeypatch.setattr(ForwardLinks, "_candidates", watched)
    looks = []
    for count in (10, 100):
        seen.clear()
        timeline = Timeline()
        for _ in range(count):
            with timeline.forward("fkey", sequence=7):
                timeline.triton("triton_poi_fused_mul_0")
            with timeline.backward("bkey", sequence=7):
                timeline.triton("triton_poi_fused_mul_1")
        attribute(timeline.recording())
        looks.append(sum(seen.values()) / count)
    assert looks[1] <= 2 * looks[0]


class CountedEvents:
    def __init__(self, events: RawEvents) -> None:
        self.events, self.read = events, Counter[int]()

    def __len__(self) -> int:
        return len(self.events)

    def __getitem__(self, position: int) -> bytes:
        self.read[position] += 1
        return self.events[position]

    def at(self, positions: Ints) -> Iterator[bytes]:
        return map(self.__getitem__, positions.tolist())


def test_tables_read_no_kernel_of_the_file_again():
    analysis = gpu_step()
    raw = CountedEvents(analysis.recording.trace.raw)
    trace = replace(analysis.recording.trace, raw=raw)
    analysis = replace(analysis, recording=replace(analysis.recording, trace=trace))
    for table in (tables.by_kernel, tables.by_site, tables.launches, tables.by_kernel):
        table(analysis)
    kernels = analysis.launches.event[analysis.launches.kind.where("triton")]
    positions = analysis.recording.trace.events.position[kernels].tolist()
    assert positions
    assert not raw.read.keys() & set(positions)
