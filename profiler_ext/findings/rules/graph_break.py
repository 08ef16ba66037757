"""The rule for graph breaks that keep the device waiting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median_low

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, time_within
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, SavingPer
from profiler_ext.findings.graph_breaks import (
    Span,
    Ways,
    breaks_by_line,
    line_of,
    location_of_break,
    named,
    ways_of_breaks,
)
from profiler_ext.findings.groups import Kind, LaunchGroup
from profiler_ext.findings.launch_groups import groups_of
from profiler_ext.findings.rule import NO_ROWS, Candidate, Rule
from profiler_ext.kineto import classify, names
from profiler_ext.records.compiles import GraphBreak
from profiler_ext.records.events import Ints

_MIN_FRACTION = 0.01
# What heads the last part of a reason. Source: ``torch/_dynamo/exc.py``.
_FOR_DEVELOPERS = "Developer debug context"


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    compiles = facts.compiles
    if isinstance(compiles, CannotJudge):
        return compiles
    resumed = {each.compile_id: each for each in compiles if each.is_resumed and each.compile_id}
    breaks, frames = breaks_by_line(compiles), _Frames(facts)
    places: dict[GraphBreak, list[str]] = {}
    for compile_id, compiled in resumed.items():
        # Dynamo has a function go on at the line of the break.
        if (match := breaks.get((compiled.file, compiled.line))) is not None:
            places.setdefault(match, []).append(compile_id)
    spans = {match: set(frames.spans_before(ids)) for match, ids in places.items()}
    # Where what follows a break launches nothing, the next graph is that of another call
    first_at = {line_of(match): match for match in reversed(spans)}
    for compiled in compiles:
        for match in compiled.breaks if compiled.compile_id else ():
            of_line = first_at.setdefault(line_of(match), match)
            if compiled.compile_id and not spans.get(of_line):
                spans.setdefault(of_line, set()).update(frames.spans_after(compiled.compile_id))
    idle_ns = _idle_ns(facts, [span for of_break in spans.values() for span in of_break])
    groups = {(each.location.file, each.location.line): each for each in _groups(facts)}
    candidates = [
        _candidate(facts, match, sorted(own), idle_ns, groups.pop(line_of(match), None))
        for match, own in spans.items()
        if own
    ]
    ways = ways_of_breaks(facts)
    candidates += [_candidate(facts, ways[line].match, (), {}, groups[line]) for line in groups]
    return tuple(filter(None, candidates))


def _groups(facts: Facts) -> list[LaunchGroup]:
    least_ns = _MIN_FRACTION * facts.training.step_ns
    return [each for each in groups_of(facts, Kind.BREAKS) if each.saving_ns >= least_ns]


def _candidate(
    facts: Facts,
    match: GraphBreak,
    calls: Sequence[Span],
    idle_of: Mapping[Span, int],
    group: LaunchGroup | None,
) -> Candidate | None:
    steps = facts.analysis.steps
    idle_ns = median_low(
        sum(idle_of[each] for each in calls if step.cpu_start_ns <= each[0] < step.cpu_end_ns)
        for step in steps
    )
    if idle_ns < _MIN_FRACTION * facts.step_ns and group is None:
        return None
    launches, gone_ns = _of_group(facts, group)
    return Candidate(
        summary="graph break: the device waits until the next graph is called",
        est_saving_ns=0 if group is None else group.saving_ns,
        saving_per=SavingPer.UNKNOWN if group is None else SavingPer.STEP,
        confidence=Confidence.ESTIMATED,
        remedy=(
            "rewrite it so that Dynamo can trace it, or move it out of the model; "
            "fullgraph=True makes each break an error"
        ),
        location=location_of_break(match),
        evidence=(
            *([Figure("breaks a step", len(calls) / len(steps))] if calls else ()),
            Figure("idle on the way to the next graph", idle_ns, FigureUnit.NS),
            *(() if group is None else _of_ways(facts, ways_of_breaks(facts)[line_of(match)])),
            *_of_launches(facts, launches),
            Figure("torch's reason", _reason(match), FigureUnit.TEXT),
        ),
        launches=launches,
        busy_ns=facts.median_per_step(launches, gone_ns),
        idle=_pieces(facts, calls) if group is None else group.idle(facts),
    )


def _of_group(facts: Facts, group: LaunchGroup | None) -> tuple[Ints, Ints]:
    """Return what a group launches eagerly, and how much of its time on the device is gone."""
    if group is None:
        return NO_ROWS, NO_ROWS
    duration_ns = facts.launches.duration_ns[group.launches]
    return group.launches, ((1 - group.busy_kept) * duration_ns).astype(np.int64)


def _of_ways(facts: Facts, ways: Ways) -> tuple[Figure, ...]:
    steps = len(facts.analysis.steps)
    return (
        Figure("further graphs a step", ways.forward / steps),
        Figure("of them in the backward, too", ways.backward / steps),
        Figure("their guards and wrappers, as recorded", ways.per_step_ns(facts), FigureUnit.NS),
    )


def _of_launches(facts: Facts, launches: Ints) -> tuple[Figure, ...]:
    count = facts.launches_per_step(launches)
    return (Figure("launched eagerly between them, a step", count),) if count else ()


def _reason(match: GraphBreak) -> str:
    """Return what Dynamo could not trace, why, and its hints, without the text of all breaks."""
    own = match.reason.partition(_FOR_DEVELOPERS)[0].strip()
    opening, _, rest = own.partition("\n")
    shown = rest if opening.endswith(":") and rest.strip() else own
    return "; ".join(line.strip() for line in shown.splitlines() if line.strip())


class _Frames:
    """The frames of compiled functions in the trace, and the calls of graphs within them."""

    def __init__(self, facts: Facts) -> None:
        self._events = facts.analysis.recording.trace.events
        ids = [names.compile_id(text) for text in self._events.name.strings]
        codes = self._events.name.codes
        self._rows = np.flatnonzero(np.array([each is not None for each in ids], np.bool_)[codes])
        self._of_id: dict[str, list[int]] = {}
        for row in self._rows.tolist():
            self._of_id.setdefault(str(ids[int(codes[row])]), []).append(row)
        # The rows of the calls of compiled graphs that are no backward, in order of time. What
        # a call does before its first kernel grows with its inputs, of which one graph in the
        # place of two has as many: a break costs what lies between the calls.
        compiled = named(facts, classify.is_compiled_forward)
        calls = compiled if len(compiled) else named(facts, names.is_graph_marker)
        self._starts_ns, self._ends_ns = self._events.start_ns[calls], self._events.end_of(calls)
        self._engine_ns = np.sort(self._events.start_ns[named(facts, classify.is_engine)])
        self._latest_ns = np.maximum.accumulate(self._ends_ns)
        ordered = self._rows[np.argsort(self._events.start_ns[self._rows], kind="stable")]
        self._frame_starts_ns = self._events.start_ns[ordered]
        self._frame_latest_ns = np.maximum.accumulate(self._events.end_of(ordered))

    def spans_before(self, compile_ids: Sequence[str]) -> list[Span]:
        rows = sorted(row for each in compile_ids for row in self._of_id.get(each, ()))
        return list(filter(None, map(self._span_before, rows)))

    def spans_after(self, compile_id: str) -> list[Span]:
        """Return the time from each graph of a frame to the next graph of the same forward."""
        return list(filter(None, map(self._span_after, self._of_id.get(compile_id, ()))))

    def _span_after(self, row: int) -> Span | None:
        begin, end = int(self._events.start_ns[row]), self._events.end_at(row)
        own = np.flatnonzero((self._starts_ns >= begin) & (self._ends_ns <= end))
        following = int(np.searchsorted(self._starts_ns, end))
        if not len(own) or following == len(self._starts_ns):
            return None
        over, begun = int(self._ends_ns[own].max()), int(self._starts_ns[following])
        is_same = np.searchsorted(self._engine_ns, over) == np.searchsorted(self._engine_ns, begun)
        return (over, begun) if is_same else None

    def _span_before(self, row: int) -> Span | None:
        begin, end = int(self._events.start_ns[row]), self._events.end_at(row)
        following = int(np.searchsorted(self._starts_ns, begin))
        if following == len(self._starts_ns) or self._starts_ns[following] >= end:
            return None
        first = int(np.searchsorted(self._frame_latest_ns, end))
        is_around = first < np.searchsorted(self._frame_starts_ns, begin)
        outer = int(self._frame_starts_ns[first]) if is_around else begin
        before = self._ends_ns[int(np.searchsorted(self._latest_ns, outer)) : following]
        left = before[(before <= begin) & (before >= outer)]
        # Else it is the way to the first graph, which is there without a break.
        return (int(left.max()), int(self._starts_ns[following])) if len(left) else None


def _pieces(facts: Facts, spans: Sequence[Span]) -> Ints:
    idle = facts.analysis.idle
    begins, ends = (np.sort(each) for each in np.array(spans, np.int64).reshape(-1, 2).T)
    started = np.searchsorted(begins, idle.start_ns + idle.duration_ns)
    over = np.searchsorted(ends, idle.start_ns, side="right")
    return np.flatnonzero(started > over)


def _idle_ns(facts: Facts, spans: Sequence[Span]) -> dict[Span, int]:
    idle = facts.analysis.idle
    spent = time_within(spans, idle.start_ns, idle.start_ns + idle.duration_ns)
    return dict(zip(spans, spent, strict=True))


RULE = Rule(
    name="graph_break",
    title="A graph break",
    means="Dynamo could not continue at this line, so the function became two graphs, and the "
    "device was idle from the end of the first to the beginning of the second. The finding has "
    "torch's reason.",
    because="What Dynamo cannot trace (a print, a call into C, an `if` on a tensor) runs in "
    "Python between graphs. Each graph has its own guards, wrapper and autograd node.",
    remedy="`torch.compile(fullgraph=True)` shows each break as an error with its hints. Move "
    "logging and checks out of the model, or make a custom op of what cannot be traced.",
    saving="How much shorter the step would be in a replay with one graph in place of several. "
    "The program's Python between the graphs stays. Gone is "
    "torch's work from the last launch of a graph to the first of the next, in forward and "
    "backward: the wrapper that is left, guards, the frame and the wrapper that are entered, the "
    "begin of the generated code. That grows with the tensors that a graph is given and keeps for "
    "its backward, and one graph has as many: for each, three microseconds as recorded stay "
    "(large graphs took 1.9 to 4.8). If they may be half of it, or the "
    "graph is not known, it counts nothing. What runs eagerly in between would be of the graph: of "
    "that and its backward 15% of the CPU's time is left, and a third of that of torch's own "
    "kernels, as in `eager_beside_compiled`; reads of values stay. Where Dynamo left a whole "
    "function to Python, the graphs that it calls count, too, if lines show that the CPU was "
    "within it in between. Several breaks are replayed one after the other, on top of each other. "
    "What is fused in one graph, and waits at the break, are not included. Below 1% of the usual "
    "step the saving is unknown, and idle time from one graph to the next is a figure.",
    not_on_cpu="the launches ran on the CPU, where nothing waits for launches",
    judge=_judge,
)
