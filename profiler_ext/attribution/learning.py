"""Owns what the first calls of a graph teach, before CUDA graphs replay it.

A replay tells no operators; the call that records the CUDA graph does, and what it launches
is what every replay runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from profiler_ext.attribution.alignment import align
from profiler_ext.attribution.calls import Surroundings, find_calls
from profiler_ext.attribution.invocations import Invocation
from profiler_ext.attribution.launches import find_launch_calls
from profiler_ext.attribution.nesting import nest
from profiler_ext.attribution.runs import Learnt
from profiler_ext.attribution.verification import is_plausible
from profiler_ext.records import (
    CallSite,
    Events,
    GapReason,
    GraphInstance,
    SiteEvidence,
    SiteKind,
)

_Counts = tuple[tuple[int, int], ...]
_TRITON = (SiteKind.TRITON, SiteKind.TRITON_TEMPLATE, SiteKind.USER_TRITON)


def library_counts(events: Events, sites: Sequence[CallSite]) -> _Counts:
    """Count what each library call launches in the one graph call of a trace.

    Args:
        events: a trace of one call of the graph: its warm-up, or the one that records it.
        sites: the graph's call sites.

    Returns:
        Pairs of call site and count, by call site; empty where the call does not align.
    """
    nesting = nest(events)
    around = Surroundings(events, nesting)
    calls = find_calls(around, find_launch_calls(events, nesting))
    if len(calls) != 1:
        return ()
    matches = align(sites, calls[0].units, Learnt())
    disputed = any(match.gap is GapReason.ALIGNMENT_MISMATCH for match in matches)
    if disputed or not is_plausible(calls[0].units, matches):
        return ()
    pairs = zip(matches, calls[0].launches, strict=True)
    launched = Counter(match.site for match, own in pairs for _ in own)
    counts = {at: launched[at] for at, s in enumerate(sites) if s.kind is SiteKind.EXTERN}
    # While a CUDA graph is recorded the driver may report no launches; that teaches nothing.
    # A graph may be recorded in parts, with library calls between them that do launch.
    is_recorded = any(not launched[at] for at, s in enumerate(sites) if s.kind in _TRITON)
    return tuple((at, n) for at, n in counts.items() if n or not is_recorded)


def settled_counts(
    found: Sequence[Invocation], graphs: Sequence[GraphInstance]
) -> tuple[tuple[int, _Counts], ...]:
    """Count what each library call launched in the replays that were explained whole.

    The first call of a graph may launch more than its replays do; what the replays settled is
    worth keeping for a run that sees nothing else.

    Args:
        found: the calls and their matches.
        graphs: the graphs that they ran.

    Returns:
        Pairs of graph and counts; a graph whose replays differ is left out.
    """
    settled: dict[int, set[_Counts]] = {}
    for each in found:
        if each.graph is not None and each.call.is_replay and _is_whole(each):
            settled.setdefault(each.graph, set()).add(_counts(each, graphs[each.graph]))
    return tuple((graph, counts.pop()) for graph, counts in settled.items() if len(counts) == 1)


def _is_whole(found: Invocation) -> bool:
    is_known = all(match.gap in (None, GapReason.WRAPPER_GLUE) for match in found.matches)
    is_stored = any(match.evidence is SiteEvidence.STORED_COUNTS for match in found.matches)
    return is_known and not is_stored


def _counts(found: Invocation, graph: GraphInstance) -> _Counts:
    sites = graph.provenance.call_sites if graph.provenance else ()
    pairs = zip(found.matches, found.call.launches, strict=True)
    launched = Counter(match.site for match, own in pairs for _ in own)
    return tuple((at, launched[at]) for at, s in enumerate(sites) if s.kind is SiteKind.EXTERN)
