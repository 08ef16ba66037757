"""Owns what the first calls of a graph teach, before CUDA graphs replay it.

A replay tells no operators; the call that records the CUDA graph does, and what it launches
is what every replay runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from profiler_ext.attribution.alignment import align
from profiler_ext.attribution.calls import Surroundings, find_calls
from profiler_ext.attribution.launches import find_launch_calls
from profiler_ext.attribution.nesting import nest
from profiler_ext.attribution.verification import is_plausible
from profiler_ext.records import CallSite, Events, GapReason, SiteKind


def library_counts(events: Events, sites: Sequence[CallSite]) -> tuple[tuple[int, int], ...]:
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
    matches = align(sites, calls[0].units, {})
    disputed = any(match.gap is GapReason.ALIGNMENT_MISMATCH for match in matches)
    if disputed or not is_plausible(calls[0].units, matches):
        return ()
    counts = dict.fromkeys((n for n, s in enumerate(sites) if s.kind is SiteKind.EXTERN), 0)
    for match, launches in zip(matches, calls[0].launches, strict=True):
        if match.site in counts:
            counts[match.site] += len(launches)
    # While a CUDA graph is recorded the driver may report no launches; that teaches nothing.
    return tuple(sorted(counts.items())) if any(counts.values()) else ()
