"""Owns the rule of breaks in the graphs that Dynamo makes, which keep the device waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median_low

import numpy as np

from profiler_ext.findings.facts import Facts, Lacking
from profiler_ext.findings.finding import NOWHERE, Figure, FigureUnit, Stake, Sureness, Where
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.findings.steps import within
from profiler_ext.kineto import classify, names
from profiler_ext.records import Compilation, GraphBreak, Ints

_Span = tuple[int, int]
_LEAST = 0.01
_FOR_DEVELOPERS = "Developer debug context"
"""What heads the last part of a reason. Source: ``torch/_dynamo/exc.py``."""


def _judge(facts: Facts) -> Iterable[Candidate] | Lacking:
    if not facts.on_device:
        return Lacking("the launches ran on the CPU, where nothing waits for launches")
    compiles = facts.compiles
    if isinstance(compiles, Lacking):
        return compiles
    resumed = {each.compile_id: each for each in compiles if each.is_resumed and each.compile_id}
    places: dict[GraphBreak, list[str]] = {}
    for compile_id, compiled in resumed.items():
        if (found := _break_of(compiled, compiles)) is not None:
            places.setdefault(found, []).append(compile_id)
    said = (_candidate(facts, found, _calls(facts, ids)) for found, ids in places.items())
    return tuple(filter(None, said))


def _candidate(facts: Facts, found: GraphBreak, calls: Sequence[_Span]) -> Candidate | None:
    """Return a break where the device waits on the way to the next graph."""
    steps = facts.analysis.steps
    of_steps = (
        [each for each in calls if step.start_ns <= each[0] < step.end_ns] for step in steps
    )
    idle_ns = median_low([_idle_ns(facts, own) for own in of_steps])
    if idle_ns < _LEAST * facts.step_ns:
        return None
    frame = found.stack[-1] if found.stack else None
    return Candidate(
        what="a graph breaks here, and the device waits until the next one is called",
        at_stake_ns=0,
        stake=Stake.UNKNOWN,
        sureness=Sureness.ESTIMATED,
        remedy="write it so that Dynamo can go on, or take it out of the model; fullgraph=True "
        "makes a break an error",
        where=NOWHERE if frame is None else Where(frame.file, frame.line, frame.code),
        why=(
            Figure("breaks a step", len(calls) / len(steps)),
            Figure("idle on the way to the next graph", idle_ns, FigureUnit.NS),
            Figure("torch's reason", _told(found.reason), FigureUnit.TEXT),
        ),
        idle=_pieces(facts, calls),
    )


def _break_of(resumed: Compilation, compiles: Sequence[Compilation]) -> GraphBreak | None:
    """Return the break after which a function goes on: Dynamo has it begin at that line."""
    breaks = (each for compiled in compiles for each in compiled.breaks)
    place = resumed.file, resumed.line
    at_line = (b for b in breaks if any((f.file, f.line) == place for f in b.stack))
    return next(at_line, None)


def _calls(facts: Facts, compile_ids: Sequence[str]) -> list[_Span]:
    """Return from the end of a graph before a break to the begin of the one after it."""
    events = facts.analysis.recording.trace.events
    ids = [names.compile_id(text) for text in events.name.strings]
    frames = np.flatnonzero(np.array([each is not None for each in ids])[events.name.codes])
    own = [row for row in frames.tolist() if ids[int(events.name.codes[row])] in compile_ids]
    return list(_gaps(facts, np.array(own, np.int64), frames))


def _gaps(facts: Facts, resumed: Ints, frames: Ints) -> Iterator[_Span]:
    """Yield the ways to the first graph in frames that go on, from within the frame around each."""
    events, calls = facts.analysis.recording.trace.events, _forwards(facts)
    starts, over = events.start_ns[calls], events.end_ns[calls]
    for row in resumed.tolist():
        begin, end = int(events.start_ns[row]), int(events.end_ns[row])
        around = frames[(events.start_ns[frames] < begin) & (events.end_ns[frames] >= end)]
        following = int(np.searchsorted(starts, begin))
        if following == len(starts) or starts[following] >= end:
            continue
        outer = int(events.start_ns[around].min()) if len(around) else begin
        left = over[:following][(over[:following] <= begin) & (over[:following] >= outer)]
        if len(left):  # else it is the way to the first graph, which is there without a break
            yield int(left.max()), int(starts[following])


def _forwards(facts: Facts) -> Ints:
    """Return the rows of the calls of compiled graphs that are no backward, in order of time.

    What a call does before its first kernel grows with its inputs, of which one graph in the place
    of two has as many: a break costs what lies between the calls.
    """
    compiled = _named(facts, classify.is_compiled_forward)
    return compiled if len(compiled) else _named(facts, names.is_graph_marker)


def _named(facts: Facts, is_such: Callable[[str], bool]) -> Ints:
    events = facts.analysis.recording.trace.events
    flags = np.array([is_such(text) for text in events.name.strings], np.bool_)
    rows = np.flatnonzero(flags[events.name.codes])
    return rows[np.argsort(events.start_ns[rows], kind="stable")]


def _pieces(facts: Facts, spans: Sequence[_Span]) -> Ints:
    """Return the pieces of idle time of which something lies in spans."""
    idle = facts.analysis.idle
    begins, ends = (np.sort(each) for each in np.array(spans, np.int64).reshape(-1, 2).T)
    begun = np.searchsorted(begins, idle.start_ns + idle.duration_ns)
    over = np.searchsorted(ends, idle.start_ns, side="right")
    return np.flatnonzero(begun > over)


def _idle_ns(facts: Facts, spans: Sequence[_Span]) -> int:
    """Return how long devices ran nothing within spans."""
    idle = facts.analysis.idle
    return sum(within(spans, idle.start_ns, idle.start_ns + idle.duration_ns))


def _told(reason: str) -> str:
    """Return what Dynamo could not trace, why and what it hints at, without what all breaks say."""
    own = reason.partition(_FOR_DEVELOPERS)[0].strip()
    opening, _, rest = own.partition("\n")
    told = rest if opening.endswith(":") and rest.strip() else own
    return "; ".join(line.strip() for line in told.splitlines() if line.strip())


RULE = Rule(
    name="graph_break",
    title="A break in a compiled graph",
    means="Dynamo could not go on at this line, so the function became two graphs; and from the "
    "end of the one to the begin of the other the device had nothing to run. The finding has "
    "torch's reason.",
    because="What Dynamo cannot trace (a print, a call into C, an `if` on a tensor) runs in Python "
    "between graphs. Each graph has guards, a wrapper and an autograd node of its own.",
    remedy="`torch.compile(fullgraph=True)` shows each break as an error with its hints. Move "
    "logging and checks out of the model, or make an op of what cannot be traced.",
    stake="Not known. The idle time from one graph to the next is a figure, from 1% of the usual "
    "step on; but what a call does before its first kernel grows with its inputs, of which one "
    "graph has as many as two: without four breaks a step was not measurably faster.",
    judge=_judge,
)
