"""Owns the spans of one compile: which lies in which, and how its time parts among the phases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from profiler_ext.capture.timing.phases import phase_of
from profiler_ext.records import CompilePhase, CompileSpan, CompileTime

_MAX_SPANS = 200
_MIN_FRACTION = 1000  # a thousandth of the compile cannot be seen


@dataclass(slots=True)
class Span:
    """One part of a compile that torch times.

    Attributes:
        name: torch's name for it.
        phase: the phase that it is in.
        started_ns: when it began, since 1970.
        duration_ns: how long it took, once it is over.
        graph: index of the graph instance that became ready in it, if it is Inductor's.
        inside: those that lie in it.
    """

    name: str
    phase: CompilePhase
    started_ns: int
    duration_ns: int = 0
    graph: int | None = None
    children: list[Span] = field(default_factory=list)


def begin_span(name: str, started_ns: int, parent: Span | None) -> Span:
    """Return a span that has begun.

    Args:
        name: torch's name for it.
        started_ns: when.
        around: the span that it lies in, if any.
    """
    outer = parent.phase if parent is not None else CompilePhase.OTHER
    span = Span(name, phase_of(name) or outer, started_ns)
    if parent is not None:
        parent.children.append(span)
    return span


def times(outermost: Span) -> tuple[CompileTime, ...]:
    """Return how long a compile was in each phase, and for which graph; it adds up to its time.

    Where the system's clock was set meanwhile, only the sum is known.
    """
    own: Counter[tuple[CompilePhase, int | None]] = Counter()
    for span, graph, _ in _all(outermost, None, 0):
        own[span.phase, graph] += span.duration_ns - sum(each.duration_ns for each in span.children)
    if any(spent < 0 for spent in own.values()):
        return (CompileTime(CompilePhase.OTHER, outermost.duration_ns),)
    return tuple(
        CompileTime(phase, own[phase, graph], graph)
        for phase, graph in sorted(own, key=_whole_compile_first)
        if own[phase, graph]
    )


def _whole_compile_first(entry: tuple[CompilePhase, int | None]) -> tuple[int, int]:
    phase, graph = entry
    return -1 if graph is None else graph, tuple(CompilePhase).index(phase)


def visible(outermost: Span) -> tuple[CompileSpan, ...]:
    """Return the spans that are long enough to be seen, in the order of their begin."""
    every = [(span, depth) for span, _, depth in _all(outermost, None, 0)]
    shortest = outermost.duration_ns // _MIN_FRACTION
    longest = sorted(every, key=lambda item: -item[0].duration_ns)[:_MAX_SPANS]
    kept = {id(span) for span, _ in longest if span.duration_ns >= shortest}
    return tuple(
        CompileSpan(span.name, span.phase, span.started_ns, span.duration_ns, depth)
        for span, depth in every
        if id(span) in kept
    )


def _all(span: Span, graph: int | None, depth: int) -> Iterator[tuple[Span, int | None, int]]:
    """Each span with the graph that it is for and how many lie around it, outer ones first."""
    graph = graph if span.graph is None else span.graph
    yield span, graph, depth
    for each in span.children:
        yield from _all(each, graph, depth + 1)
