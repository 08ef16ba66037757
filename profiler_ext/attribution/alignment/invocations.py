"""Owns which graph instance each call of a compiled graph ran, and the matches of what it ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profiler_ext.attribution.alignment.aligner import Aligner
from profiler_ext.attribution.alignment.matching import Match
from profiler_ext.attribution.alignment.verification import is_plausible
from profiler_ext.attribution.calls.graph_calls import GraphCall
from profiler_ext.attribution.calls.patterns import Pattern
from profiler_ext.records import GapReason, GraphInstance


@dataclass(frozen=True, slots=True)
class Invocation:
    """A call of a compiled graph with what was found of it.

    Attributes:
        call: the call.
        graph: index into ``Recording.graphs``; ``None`` when not known.
        matches: one for each item of the call.
        gap: why the graph is not known.
    """

    call: GraphCall
    graph: int | None
    matches: tuple[Match, ...]
    gap: GapReason | None = None


def identify(
    calls: Sequence[GraphCall], graphs: Sequence[GraphInstance], aligner: Aligner
) -> tuple[Invocation, ...]:
    """Find the graph of every call and align it.

    Calls without replay come first: they teach which kernels a library call launches.

    Args:
        calls: the calls.
        graphs: the graph instances of the process.
        aligner: aligns the calls with those graphs.

    Returns:
        One for each call, in the order of the calls.
    """
    identifier = _Identifier(graphs, aligner)
    invocations: dict[int, Invocation] = {}
    for call in sorted(calls, key=lambda call: call.is_replay):
        invocation_found = invocations[call.marker] = identifier.invocation(call)
        if invocation_found.graph is not None and not call.is_replay:
            aligner.observe(invocation_found.graph, call, invocation_found.matches)
    return tuple(invocations[call.marker] for call in calls)


class _Identifier:
    """Finds the graph of each call; what equal calls have in common it looks at once."""

    def __init__(self, graphs: Sequence[GraphInstance], aligner: Aligner) -> None:
        self._graphs, self._aligner = graphs, aligner
        self._of_key: dict[str | None, list[int]] = {}
        for at, graph in enumerate(graphs):
            self._of_key.setdefault(graph.key, []).append(at)
        self._known: dict[object, list[int] | None] = {}
        self._are_plausible: dict[object, tuple[tuple[Match, ...], bool]] = {}
        self._gaps: dict[tuple[GapReason, int], tuple[Match, ...]] = {}

    def invocation(self, call: GraphCall) -> Invocation:
        candidates = self._candidates(call)
        if candidates is None:
            return self._unknown(call, GapReason.CAPTURE_FAILED)
        if not candidates:
            return self._unknown(call, GapReason.GRAPH_NOT_CAPTURED)
        if self._aligner.are_too_few(candidates, call):
            return self._unknown(call, GapReason.GRAPH_AMBIGUOUS)
        candidates = self._fitting(call, candidates)
        if not candidates or not self._aligner.are_equivalent(candidates):
            return self._unknown(call, GapReason.GRAPH_AMBIGUOUS)
        graph = candidates[-1]
        matches = self._aligner.align(graph, call)
        if not self._is_plausible(call.pattern, matches):
            matches = self._all_gaps(call, GapReason.ALIGNMENT_MISMATCH)
        return Invocation(call, graph, matches)

    def _candidates(self, call: GraphCall) -> list[int] | None:
        """Return the graphs that a call may have run; ``None`` where capture lost one of them."""
        key = (call.graph, call.key, call.compile_id, call.context.is_backward, call.place)
        if key not in self._known:
            candidates = _candidates(call, self._graphs, self._of_key.get(call.key, []))
            candidates = self._aligner.latest_graphs(candidates)
            in_place = self._aligner.regions.at_place(candidates, call)
            self._known[key] = None if self._aligner.may_have_failed(call) else in_place
        return self._known[key]

    def _fitting(self, call: GraphCall, candidates: list[int]) -> list[int]:
        if not self._aligner.are_equivalent(candidates):
            candidates = [at for at in candidates if _fits(call, at, self._aligner)]
        if not self._aligner.are_equivalent(candidates):
            candidates = _as_called(call, candidates, self._graphs)
        return candidates

    def _is_plausible(self, pattern: Pattern, matches: tuple[Match, ...]) -> bool:
        key = (pattern, id(matches))  # they are kept, so that no others can come to be the same
        if key not in self._are_plausible:
            self._are_plausible[key] = matches, is_plausible(pattern.work, matches)
        return self._are_plausible[key][1]

    def _unknown(self, call: GraphCall, reason: GapReason) -> Invocation:
        return Invocation(call, None, self._all_gaps(call, reason), reason)

    def _all_gaps(self, call: GraphCall, reason: GapReason) -> tuple[Match, ...]:
        count = len(call.work)
        return self._gaps.setdefault((reason, count), (Match(gap=reason),) * count)


def _candidates(
    call: GraphCall, graphs: Sequence[GraphInstance], candidates: list[int]
) -> list[int]:
    """Return the captured graphs that the call may have run.

    The one that the process noted of it, or else those of its key, frame and direction.

    Args:
        call: the call.
        graphs: the graph instances of the process.
        candidates: those that have its key.
    """
    if call.graph is not None:
        return [at for at in candidates if at == call.graph and graphs[at].is_known]
    candidates = [at for at in candidates if graphs[at].is_known]
    if call.compile_id is not None:
        same_frame = [at for at in candidates if graphs[at].compile_id == call.compile_id]
        without_compile_id = [at for at in candidates if call.key and graphs[at].compile_id is None]
        candidates = same_frame or without_compile_id
    same_direction = [at for at in candidates if graphs[at].is_backward == call.context.is_backward]
    return same_direction if same_direction or call.key is None else candidates


def _as_called(
    call: GraphCall, candidates: list[int], graphs: Sequence[GraphInstance]
) -> list[int]:
    """Return those candidates of which a gradient was asked for, or not, as of the call."""
    is_differentiated = call.context.is_forward or call.context.is_backward
    known = (at for at in candidates if graphs[at].is_known)
    same_mode = [at for at in known if graphs[at].is_inference != is_differentiated]
    return same_mode or candidates


def _fits(call: GraphCall, graph: int, aligner: Aligner) -> bool:
    gaps = {match.gap for match in aligner.align(graph, call)}
    return GapReason.ALIGNMENT_MISMATCH not in gaps
