"""Makes the sessions of a job of many ranks out of one rank's recording.

A rank made is the recording with its times moved. Each stretch between two collectives takes a bit
longer from rank to rank (0.5%), a collective ends on all ranks when the last one has come and the
transfer is over, and each host has a clock of its own (5 ms). Planted are: a line that is slower on
three ranks, a rank that sleeps before the first collective of each step, and a host on which all is
slower.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from profiler_ext.attribution.collectives import collectives_of, ends_ns, starts_ns
from profiler_ext.exporters.formats import FILE_NAME
from profiler_ext.kineto.recording import read_recording, write_recording
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Ints
from profiler_ext.records.recording import Recording
from profiler_ext.records.share_sums import largest_places
from profiler_ext.sessions.session import Session

_JITTER, _CLOCK_NS = 0.005, 5_000_000
_LINE_OF_STEP, _SLEEP_OF_STEP, _HOST_TIMES = 0.06, 0.08, 1.12
Times = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Plan:
    """What is planted; ranks and hosts by number."""

    ranks: int
    of_host: int = 8
    slow_line: tuple[int, ...] = ()
    sleeper: int | None = None
    slow_host: int | None = None

    @classmethod
    def planted(cls, ranks: int) -> Plan:
        """Return one of each, on ranks that are far from each other."""
        line = (1, ranks // 2 + 2, ranks - 2)
        return cls(
            ranks, slow_line=line, sleeper=ranks * 3 // 4 + 1, slow_host=ranks // cls.of_host // 3
        )

    def expected(self) -> set[tuple[str, str]]:
        """Return what must be found: in what a rank or host is behind, and which."""
        found = {("slower_line", f"rank {rank}") for rank in self.slow_line}
        if self.sleeper is not None:
            found.add(("late_at_collectives", f"rank {self.sleeper}"))
        if self.slow_host is not None:
            found.add(("host", host_name(self.slow_host)))
        return found


@dataclass
class Template:
    """A rank's recording, and where its times can be changed."""

    analysis: Analysis
    starts: Times
    ends: Times
    line: tuple[str, int]
    line_spans: Times
    step_ns: int
    steps: Sequence[tuple[int, int]]
    events: list[dict[str, Any]] = field(default_factory=list)
    device_rows: set[int] = field(default_factory=set)
    collective_rows: dict[int, int] = field(default_factory=dict)


class Raw(list[bytes]):
    """Events as JSON."""

    def at(self, positions: Ints) -> Iterator[bytes]:
        """Yield those at some positions."""
        return (self[position] for position in positions.tolist())


def host_name(number: int) -> str:
    """Return the name of a host."""
    return f"node-{number:03d}"


def template_of(path: Path) -> Template:
    """Read a rank's recording; its longest line is the one that may be slower."""
    analysis = Session(read_recording(path)).analysis
    trace, launches = analysis.recording.trace, analysis.launches
    assert analysis.recording.python is None, "watched lines have times of their own"
    own = collectives_of(analysis)
    order = np.argsort(starts_ns(own), kind="stable")
    places = [(place.file, place.line) for place in analysis.places]
    main = [places[at] for at in largest_places(analysis).tolist()]
    spent: dict[tuple[str, int], int] = {}
    for at, where in enumerate(main):
        if where[0] and launches.kind[at] != "communication":
            spent[where] = spent.get(where, 0) + int(launches.duration_ns[at])
    line = max(spent, key=lambda each: spent[each])
    slow = [at for at, where in enumerate(main) if where == line]
    begin = launches.start_ns[slow]
    events = [msgspec.json.decode(trace.raw[at]) for at in range(len(trace.raw))]
    rows = {int(trace.events.position[row]) for row in launches.event.tolist()}
    number = {int(at): place for place, at in enumerate(order.tolist())}
    of_launch = zip(own.launch.tolist(), own.launch_collective.tolist(), strict=True)
    collectives = {
        int(trace.events.position[launches.event[launch]]): number[at] for launch, at in of_launch
    }
    return Template(
        analysis,
        starts_ns(own)[order] - trace.base_ns,
        ends_ns(own)[order] - trace.base_ns,
        line,
        np.stack([begin, begin + launches.duration_ns[slow]], axis=1),
        int(np.median([step.wall_ns for step in analysis.steps])),
        [(step.start_ns, step.end_ns) for step in analysis.steps],
        events,
        rows,
        collectives,
    )


@dataclass
class Moved:
    """How the times of one rank are moved: as work, and as what it waits for in collectives."""

    knots: Times
    work: Times
    waits: Times

    def worked(self, times: Times) -> Times:
        """Return when something would be without waiting for other ranks."""
        return np.interp(times, self.knots, self.work)

    def at(self, times: Times) -> Times:
        """Return when something is."""
        return self.worked(times) + np.interp(times, self.knots, self.waits)


def moved_ranks(template: Template, plan: Plan, seed: int) -> tuple[list[Moved], Times, Times]:
    """Return how each rank's times are moved, and when each begins each collective, and its end."""
    draw = np.random.default_rng(seed)
    first, last = _span(template)
    sleeps = _sleeps(template)
    borders = (template.starts, template.ends, template.line_spans.reshape(-1), sleeps, sleeps + 1)
    knots = np.unique(np.concatenate([[first], *borders, [last]])).astype(np.float64)
    segment = np.searchsorted(template.starts, knots[:-1], side="right")
    middle = (knots[:-1] + knots[1:]) / 2
    in_line = _within(middle, template.line_spans)
    line_ns = np.diff(template.line_spans, axis=1).sum() / len(template.steps)
    line_times = 1 + _LINE_OF_STEP * template.step_ns / line_ns
    slopes = np.ones((plan.ranks, len(knots) - 1))
    slopes += np.abs(draw.normal(0, _JITTER, (plan.ranks, len(template.starts) + 1)))[:, segment]
    slopes[np.ix_(np.array(plan.slow_line, dtype=np.int64), np.flatnonzero(in_line))] *= line_times
    if plan.slow_host is not None:
        own = plan.slow_host * plan.of_host
        slopes[own : own + plan.of_host] *= _HOST_TIMES
    lengths = slopes * np.diff(knots)
    if plan.sleeper is not None:
        asleep = np.isin(knots[:-1], sleeps)
        lengths[plan.sleeper, asleep] += _SLEEP_OF_STEP * template.step_ns
    work = first + np.concatenate([np.zeros((plan.ranks, 1)), np.cumsum(lengths, axis=1)], axis=1)
    waits, begins, ends = _waits(template, knots, work)
    ranks = [Moved(knots, own, waited) for own, waited in zip(work, waits, strict=True)]
    return ranks, begins, ends


def _waits(template: Template, knots: Times, work: Times) -> tuple[Times, Times, Times]:
    """Let every rank leave each collective when the last has come and the transfer is over."""
    waits = np.zeros_like(work)
    begins = np.zeros((len(work), len(template.starts)))
    ends = np.zeros(len(template.starts))
    for at, (start, end) in enumerate(zip(template.starts, template.ends, strict=True)):
        begin, over = np.searchsorted(knots, [start, end])
        begins[:, at] = work[:, begin] + waits[:, begin]
        transfer = (work[:, over] - work[:, begin]).max()
        ends[at] = begins[:, at].max() + transfer
        more = np.maximum(ends[at] - work[:, over] - waits[:, over], 0)
        ramp = np.clip((knots - start) / max(end - start, 1), 0, 1)
        waits += more[:, None] * ramp
    return waits, begins, ends


def _span(template: Template) -> tuple[int, int]:
    events = template.analysis.recording.trace.events
    return int(events.start_ns.min()), int(events.end_ns.max())


def _sleeps(template: Template) -> Times:
    """Return a moment in each step before its first collective."""
    found = []
    for begin, end in template.steps:
        inside = template.starts[(template.starts > begin) & (template.starts < end)]
        found.append((begin + int(inside[0])) // 2)
    return np.array(found)


def _within(times: Times, spans: Times) -> Times:
    inside: Times = np.any((times[:, None] >= spans[:, 0]) & (times[:, None] < spans[:, 1]), axis=1)
    return inside


def make(folder: Path, template: Template, plan: Plan, seed: int = 0) -> None:
    """Write the session of each rank into a folder of its own."""
    ranks, begins, ends = moved_ranks(template, plan, seed)
    clocks_ns = np.random.default_rng(seed + 1).normal(0, _CLOCK_NS, plan.ranks // plan.of_host + 1)
    for rank, moved in enumerate(ranks):
        host = rank // plan.of_host
        raw = Raw(_events(template, moved, begins[rank], ends, plan.ranks))
        recording = _of_rank(template, raw, rank, plan, int(clocks_ns[host]))
        own = folder / f"rank_{rank}"
        own.mkdir(parents=True, exist_ok=True)
        write_recording(own / FILE_NAME, recording)


def _of_rank(template: Template, raw: Raw, rank: int, plan: Plan, clock_ns: int) -> Recording:
    recording = template.analysis.recording
    trace, base_ns = recording.trace, recording.trace.base_ns + clock_ns
    info = {"backend": "nccl", "rank": rank, "world_size": plan.ranks}
    changed = {
        "baseTimeNanoseconds": str(base_ns).encode(),
        "distributedInfo": json.dumps(info).encode(),
    }
    header = tuple((key, changed.get(key, value)) for key, value in trace.header)
    settings = replace(
        recording.settings, rank=rank, world_size=plan.ranks, host=host_name(rank // plan.of_host)
    )
    made = replace(trace, raw=raw, base_ns=base_ns, header=header)
    return replace(recording, trace=made, settings=settings)


def _events(
    template: Template, moved: Moved, begins: Times, ends: Times, ranks: int
) -> Iterator[bytes]:
    timed = [at for at, event in enumerate(template.events) if "ts" in event]
    start = np.array([1000 * float(template.events[at]["ts"]) for at in timed])
    over = start + np.array([1000 * float(template.events[at].get("dur", 0)) for at in timed])
    begun, ended = moved.at(start), moved.at(over)
    ran = moved.worked(over) - moved.worked(start)
    when = dict(zip(timed, zip(begun, ended - begun, ran, strict=True), strict=True))
    for at, event in enumerate(template.events):
        if at not in when:
            yield msgspec.json.encode(event)
            continue
        begin, duration, alone = when[at]
        if at in template.collective_rows:
            number = template.collective_rows[at]
            begin, duration = begins[number], ends[number] - begins[number]
        elif at in template.device_rows:
            duration = alone
        yield msgspec.json.encode(_changed(event, int(begin), int(duration), ranks))


def _changed(event: dict[str, Any], start_ns: int, duration_ns: int, ranks: int) -> object:
    changed = {**event, "ts": start_ns / 1000}
    if "dur" in event:
        changed["dur"] = duration_ns / 1000
    arguments = event.get("args")
    if isinstance(arguments, dict) and "Group size" in arguments:
        changed["args"] = {**arguments, "Group size": ranks, "Process Group Ranks": "..."}
    return changed
