"""What the CPU does around each further graph that a graph break makes, forward and backward.

One graph in their place has one wrapper: the way from the last kernel of a graph to the first one
of the next is gone, as far as it is torch's (guards, wrappers, the begin of the generated code).
What the program runs eagerly in between would be of that graph, and so would its backward. The
program's own Python stays, and so do reads of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median_low
from typing import Final

import numpy as np

from profiler_ext.findings.autograd_nodes import with_backward
from profiler_ext.findings.critical_path import NO_ROW
from profiler_ext.findings.facts import (
    FUSED_AWAY,
    CannotJudge,
    Facts,
    Rows,
    eager_kernels,
    enclosing,
    time_within,
)
from profiler_ext.findings.finding import NOWHERE, Location
from profiler_ext.findings.groups import (
    EAGER_KEPT,
    OUTSIDE_BACKWARD,
    READ,
    Kind,
    LaunchGroup,
    ops_of,
)
from profiler_ext.findings.rule import NO_ROWS
from profiler_ext.kineto import classify, names
from profiler_ext.records.compiles import Compilation, CompileKind, GraphBreak
from profiler_ext.records.events import Events, Ints, flag_rows
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.records.vocabulary import Scope

Span = tuple[int, int]
Line = tuple[str | None, int | None]
# So long, as recorded, a graph's guards and wrapper take for each tensor that goes in or is kept
# for the backward; one graph has as many. Over the nine graphs of eight tuned steps (H100s' hosts,
# torch 2.11; 6 to 516 tensors) least squares give 2.9 microseconds in forwards, 2.7 in backwards;
# five with more than 300 tensors have 1.9 to 4.8 each.
_TENSOR_NS: Final = 3_000
_KNOWN_PART = 0.5  # where tensors may be more of a way, the rest of it is not known


def line_of(match: GraphBreak) -> Line:
    """Return the line of a break."""
    return (match.stack[-1].file, match.stack[-1].line) if match.stack else (None, None)


def breaks_by_line(compiles: Sequence[Compilation]) -> dict[Line, GraphBreak]:
    """Return the breaks by each line of their stacks: a function goes on at one of these."""
    match: dict[Line, GraphBreak] = {}
    for each in (one for compiled in compiles for one in compiled.breaks):
        for frame in each.stack:
            match.setdefault((frame.file, frame.line), each)
    return match


@dataclass
class Ways:
    """The CPU's ways from one graph to the next that a break makes."""

    match: GraphBreak
    forward: int = 0  # how many there are in the forward
    backward: int = 0
    spans: list[Span] = field(default_factory=list)  # torch's parts of them
    eager: list[Ints] = field(default_factory=list)  # what is launched eagerly on them

    def per_step_ns(self, facts: Facts) -> int:
        """Return how long they take in the usual step, as recorded."""
        steps = [(each.cpu_start_ns, each.cpu_end_ns) for each in facts.analysis.steps]
        begins, ends = np.array(self.spans, np.int64).reshape(-1, 2).T
        return median_low(time_within(steps, begins, ends))


def ways_of_breaks(facts: Facts) -> dict[Line, Ways]:
    """Return the ways of each break, by its line."""
    return facts.analysis.derived.once("ways of graph breaks", lambda: _ways_of_breaks(facts))


def groups_of_breaks(facts: Facts) -> Iterator[LaunchGroup]:
    """Yield the CPU's work that each break adds, where the steps can be replayed."""
    if not facts.on_device or facts.replay is None:
        return
    pieces = facts.analysis.idle
    middle_ns = pieces.start_ns + pieces.duration_ns // 2
    for ways in ways_of_breaks(facts).values():
        begins, ends = np.array(sorted(ways.spans), np.int64).T
        kept = facts.replay.kept(begins, ends, facts.training.slowdown)
        at = np.searchsorted(begins, middle_ns, side="right") - 1
        own = np.flatnonzero((at >= 0) & (ends[at] >= middle_ns))
        count = max(round(ways.forward / len(facts.analysis.steps)), 1)
        eager = with_backward(facts, np.unique(np.concatenate([NO_ROWS, *ways.eager])))
        eager = eager[facts.launches.scope.where(Scope.EAGER)[eager]]
        busy = np.where(np.isin(eager, eager_kernels(facts)), 1 - FUSED_AWAY, 1.0)
        own = np.union1d(own, facts.idle_before(eager))
        where = location_of_break(ways.match)
        yield LaunchGroup(
            Kind.BREAKS, where, eager, count, EAGER_KEPT, busy, work_kept=kept, pieces=own
        )


def _ways_of_breaks(facts: Facts) -> dict[Line, Ways]:
    compiles, ways = facts.compiles, dict[Line, Ways]()
    if isinstance(compiles, CannotJudge) or not any(each.breaks for each in compiles):
        return ways
    calls = _Calls(facts)
    found: dict[tuple[int, str | None, str | None], list[GraphBreak]] = {}
    for before, after, match in _Breaks(facts, calls, compiles).between():
        key = calls.step[after], calls.compile_ids[before], calls.compile_ids[after]
        found.setdefault(key, []).append(match)
        if spans := calls.spans_between(before, after):
            own = ways.setdefault(line_of(match), Ways(match))
            own.forward += 1
            own.spans += spans
            own.eager.append(calls.eager_between(before, after))
    for before, after in calls.in_a_row(calls.is_backward):
        # The engine runs the graphs of a forward in reverse order
        key = calls.step[after], calls.compile_ids[after], calls.compile_ids[before]
        if found.get(key) and (spans := calls.spans_between(before, after)):
            own = ways.setdefault(line_of(match := found[key].pop()), Ways(match))
            own.backward += 1
            own.spans += spans
    return ways


def location_of_break(match: GraphBreak) -> Location:
    """Return the place of a break."""
    frame = match.stack[-1] if match.stack else None
    return NOWHERE if frame is None else Location(frame.file, frame.line, frame.code)


class _Calls:
    """The calls of compiled graphs within the steps, in order of time on each thread."""

    def __init__(self, facts: Facts) -> None:
        self.events = facts.analysis.recording.trace.events
        rows = outermost(self.events, named(facts, names.is_graph_marker))
        starts_ns = np.array([each.cpu_start_ns for each in facts.analysis.steps])
        step = np.searchsorted(starts_ns, self.events.start_ns[rows], side="right") - 1
        self.rows, self.step = rows[step >= 0], step[step >= 0].tolist()
        self.region = enclosing(self.events, self.rows, classify.is_compiled_frame)
        forward = enclosing(self.events, self.rows, classify.is_compiled_forward)
        backward = enclosing(self.events, self.rows, classify.is_compiled_backward)
        self.is_backward: Rows = backward != self.rows
        # Without gradients no wrapper is recorded, and a forward's begins with its frame
        self._wrapper = np.where(self.is_backward, backward, forward)
        self._entry = np.where(self.is_backward, backward, self.region)
        self._lookups = named(facts, names.CACHE_LOOKUP.__eq__)
        self._first_ns, self._last_ns = self._work()
        self._eager = self._eager_launches(facts)
        self._enqueued_ns = facts.pace.enqueued_ns[self._eager]
        self._thread_of = self.events.thread[facts.pace.call[self._eager]]
        graphs = self._graphs(facts)
        self.compile_ids = [None if each is None else each.compile_id for each in graphs]
        self._tensors = [None if each is None else _tensors(each) for each in graphs]

    def _graphs(self, facts: Facts) -> list[GraphInstance | None]:
        """Return the graph of each call, by the launches within it."""
        launches = np.flatnonzero(
            ~np.ma.getmaskarray(facts.launches.graph) & (facts.pace.call != NO_ROW)
        )
        call = facts.pace.call[launches]
        marker = enclosing(self.events, call, names.is_graph_marker)
        graph = dict(zip(marker.tolist(), facts.launches.graph[launches].tolist(), strict=True))
        known = facts.analysis.recording.graphs
        return [known[graph[row]] if row in graph else None for row in self.rows.tolist()]

    def _eager_launches(self, facts: Facts) -> Ints:
        """Return what is launched eagerly outside of a backward, reads of values left out."""
        is_own = facts.launches.scope.where(Scope.EAGER) & ~facts.pace.replayed
        is_own &= facts.launches.phase.where(*OUTSIDE_BACKWARD) & (facts.pace.call != NO_ROW)
        is_own &= ~flag_rows(ops_of(facts, np.arange(len(is_own))), READ.__eq__)
        rows = np.flatnonzero(facts.in_steps(is_own))
        return rows[np.argsort(facts.pace.enqueued_ns[rows], kind="stable")]

    def eager_between(self, before: int, after: int) -> Ints:
        """Return what is launched eagerly on the way from one graph to another."""
        bounds = int(self._last_ns[before]), int(self._first_ns[after])
        begin, end = np.searchsorted(self._enqueued_ns, bounds).tolist()
        own = self._eager[begin:end]
        is_own = self._thread_of[begin:end] == self.events.thread[self.rows[before]]
        between: Ints = own[is_own]
        return between

    def _work(self) -> tuple[Ints, Ints]:
        """Return when the first op or launch within each call begins, and when the last is over."""
        events, rows = self.events, self.rows
        first_ns, last_ns = events.start_ns[rows].copy(), events.end_of(rows).copy()
        is_work = flag_rows(events.category, classify.is_op)
        is_work |= flag_rows(events.category, classify.is_runtime_call)
        is_work[rows] = False
        for thread in np.unique(events.thread[rows]).tolist():
            own = np.flatnonzero(events.thread[rows] == thread)
            work = np.flatnonzero(is_work & (events.thread == thread))
            work = work[np.argsort(events.start_ns[work], kind="stable")]
            starts_ns, ends_ns = events.start_ns[work], events.end_of(work)
            begins = np.searchsorted(starts_ns, first_ns[own]).tolist()
            ends = np.searchsorted(starts_ns, last_ns[own]).tolist()
            for call, begin, end in zip(own.tolist(), begins, ends, strict=True):
                if begin < end:
                    first_ns[call], last_ns[call] = starts_ns[begin], ends_ns[begin:end].max()
        return first_ns, last_ns

    def in_a_row(self, chosen: Rows) -> Iterator[Span]:
        """Yield the positions of calls of a kind that follow each other in a step and thread."""
        rows = np.flatnonzero(chosen)
        thread = self.events.thread[self.rows]
        for before, after in pairwise(rows.tolist()):
            if thread[before] == thread[after] and self.step[before] == self.step[after]:
                yield before, after

    def spans_between(self, before: int, after: int) -> list[Span]:
        """Return torch's part of the way from one graph's last launch to the first of another.

        None where it is unknown how much of it is for tensors, which one graph has as many of.
        """
        events, tensors = self.events, self._tensors[after]
        left = events.end_at(int(self._wrapper[before]))
        entered = int(events.start_ns[self._entry[after]])
        spans = [(int(self._last_ns[before]), left), *self._lookups_between(left, entered, after)]
        spans.append((entered, int(self._first_ns[after])))
        whole_ns = sum(end - begin for begin, end in spans)
        if tensors is None or entered < left or _TENSOR_NS * tensors >= _KNOWN_PART * whole_ns:
            return []
        part = 1 - _TENSOR_NS * tensors / whole_ns
        return [(begin, begin + int(part * (end - begin))) for begin, end in spans]

    def _lookups_between(self, left: int, entered: int, call: int) -> list[Span]:
        events, rows = self.events, self._lookups
        own = rows[slice(*np.searchsorted(events.start_ns[rows], (left, entered)).tolist())]
        own = own[events.thread[own] == events.thread[self.rows[call]]]
        return list(zip(events.start_ns[own].tolist(), events.end_of(own).tolist(), strict=True))


def _tensors(graph: GraphInstance) -> int | None:
    """Return how many tensors a graph is given and keeps for its backward, if known."""
    if graph.provenance is None:
        return None
    sites = graph.provenance.call_sites
    read = {each for site in sites for each in site.reads}
    read -= {each for site in sites for each in site.writes}
    return len(read) + len(graph.provenance.saved_values or ())


class _Breaks:
    """Which break made two graphs that a forward calls one after the other."""

    def __init__(self, facts: Facts, calls: _Calls, compiles: Sequence[Compilation]) -> None:
        self._calls, self._events, self._idle = calls, calls.events, facts.analysis.idle
        self._by_line = breaks_by_line(compiles)
        self._by_id = {each.compile_id: each for each in compiles if each.kind is CompileKind.FRAME}
        self._skipped = [each for each in compiles if each.failure is not None and each.breaks]
        regions = outermost(self._events, named(facts, classify.is_compiled_frame))
        starts_ns = self._events.start_ns[regions]
        at = np.searchsorted(starts_ns, self._events.start_ns[calls.rows], side="right") - 1
        self._outer = np.append(regions, NO_ROW)[at].tolist()

    def between(self) -> Iterator[tuple[int, int, GraphBreak]]:
        """Yield pairs of such calls, by their positions, with the break between them."""
        calls = self._calls
        is_own = ~calls.is_backward & (calls.region != calls.rows)
        for before, after in calls.in_a_row(is_own):
            match = None
            if self._outer[before] != self._outer[after]:
                match = self._of_skipped(before, after)
            elif calls.region[before] != calls.region[after]:
                match = self._of_frames(before, after)
            if match is not None:
                yield before, after, match

    def _of_frames(self, before: int, after: int) -> GraphBreak | None:
        """Return the break at which a frame goes on, or at which it called another."""
        resumed = self._frame(self._calls.region[after])
        if resumed is not None and resumed.is_resumed:
            return self._by_line.get((resumed.file, resumed.line))
        frames = map(self._frame, (self._calls.region[before], self._outer[after]))
        return next((each.breaks[-1] for each in frames if each is not None and each.breaks), None)

    def _frame(self, region: int) -> Compilation | None:
        return self._by_id.get(names.compile_id(self._events.name[region]))

    def _of_skipped(self, before: int, after: int) -> GraphBreak | None:
        """Return the break for which Dynamo left a function to Python that calls both graphs."""
        if not self._skipped:
            return None
        begin_ns = self._events.end_at(self._outer[before])
        end_ns = int(self._events.start_ns[self._outer[after]])
        rows = np.flatnonzero((self._idle.start_ns >= begin_ns) & (self._idle.start_ns < end_ns))
        stacks = [self._idle.places[at].stack for at in np.unique(self._idle.place[rows]).tolist()]
        functions = [{(each.file, each.function) for each in stack} for stack in stacks if stack]
        for each in self._skipped if functions else ():
            # All lines at which the CPU was in between are within the function: it is one call
            if all((each.file, each.function) in own for own in functions):
                return each.breaks[-1]
        return None


def named(facts: Facts, predicate: Callable[[str], bool]) -> Ints:
    """Return the rows of events with such names, in order of time."""
    events = facts.analysis.recording.trace.events
    rows = np.flatnonzero(flag_rows(events.name, predicate))
    return rows[np.argsort(events.start_ns[rows], kind="stable")]


def outermost(events: Events, rows: Ints) -> Ints:
    """Return those of these events, which are in order of time, that are within no other."""
    ends_ns = events.end_of(rows)
    reached = np.append(0, np.maximum.accumulate(ends_ns))[: len(rows)]
    return rows[events.start_ns[rows] >= reached]
