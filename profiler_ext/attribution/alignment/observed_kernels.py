"""Observes which kernels each library call launches, in warm-up calls and complete replays.

A replay shows no operators. The call that records the CUDA graph does: its launch calls run
nothing, but each becomes a node, and the replay at its end runs the nodes in that order. A warm-up
call runs its kernels itself, but not always those of the replay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeVar

import numpy as np

from profiler_ext.attribution.alignment import aligning, loops, verification
from profiler_ext.attribution.alignment.invocations import Invocation
from profiler_ext.attribution.alignment.library_kernels import KnownKernels, ran_at_sites
from profiler_ext.attribution.enclosing import EnclosingRanges
from profiler_ext.attribution.graph_calls import GraphCall, find_calls
from profiler_ext.attribution.trace import launches, lookups
from profiler_ext.attribution.trace.nesting import nest
from profiler_ext.kineto import classify, names
from profiler_ext.records.events import Events, flag_rows
from profiler_ext.records.evidence import SiteEvidence
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import CallSite, GraphInstance, LibraryKernels
from profiler_ext.records.vocabulary import SiteKind

_Names = tuple[str, ...]
_T = TypeVar("_T")
_GENERATED = (SiteKind.TRITON, SiteKind.TRITON_TEMPLATE, SiteKind.USER_TRITON)
# A library that benchmarks its algorithms launches more than its later calls
_MAX_EVENTS = 64


@dataclass(frozen=True, slots=True)
class _OpLaunches:
    """What one operator of a call launched."""

    site: int | None  # its call site; ``None`` for the wrapper's own work
    calls: int  # its number of launch calls
    ran: _Names  # the names of its device events; none while it is recorded


def library_kernels(events: Events, sites: Sequence[CallSite]) -> LibraryKernels:
    """Return which device events each library call launches in the one graph call of a trace.

    The events are those of its warm-up, or of the call that records it; the result has pairs of
    call site and names, where known.
    """
    nesting = nest(events)
    enqueued = launches.find_launch_calls(events, nesting)
    calls = find_calls(EnclosingRanges(events, nesting), enqueued)
    if len(calls) != 1 or any(map(loops.is_in_loop, sites)):
        return ()
    pieces = _pieces(events, enqueued, calls[0], sites)
    replayed = _replayed(events, launches.find_launches(events, nesting))
    ran_at = _of_recording(pieces, replayed, sites) if replayed else _of_warmup(pieces, sites)
    return tuple((at, ran_at[at]) for at in sorted(ran_at) if len(ran_at[at]) <= _MAX_EVENTS)


def _pieces(
    events: Events, enqueued: launches.EnqueuedLaunches, call: GraphCall, sites: Sequence[CallSite]
) -> list[_OpLaunches]:
    """List what a call launched; nothing where its order does not explain all of it."""
    matches = aligning.align(sites, call.work, KnownKernels())
    disputed = any(match.gap is GapReason.ALIGNMENT_MISMATCH for match in matches)
    if disputed or not verification.is_plausible(call.work, matches):
        return []
    ran = _ran_by_correlation(events)
    keys = events.correlation[enqueued.event].filled(0).tolist()
    return [
        _OpLaunches(
            match.site, len(own), tuple(name for at in own for name in ran.get(keys[at], ()))
        )
        for match, own in zip(matches, call.launches_of_items(), strict=True)
    ]


def _ran_by_correlation(events: Events) -> dict[int, _Names]:
    """Return the names of the device events of each launch call, in order of start."""
    rows = np.flatnonzero(flag_rows(events.category, classify.is_device_work))
    rows = rows[np.lexsort((rows, events.start_ns[rows]))]
    names_by_correlation: dict[int, list[str]] = {}
    for row, key in zip(rows.tolist(), events.correlation[rows].filled(0).tolist(), strict=True):
        names_by_correlation.setdefault(key, []).append(launches.work_name(events, row))
    return {key: tuple(ran) for key, ran in names_by_correlation.items()}


def _replayed(events: Events, enqueued: launches.EnqueuedLaunches) -> _Names:
    """Return the names of what CUDA graphs replayed, in order."""
    launched = [
        (int(enqueued.enqueue_ns[at]), int(events.start_ns[row]), row)
        for at, row in enumerate(enqueued.event.tolist())
        if enqueued.call[at] != lookups.NO_ROW
        and names.is_graph_launch(events.name[int(enqueued.call[at])])
    ]
    return tuple(launches.work_name(events, row) for _, _, row in sorted(launched))


def _of_warmup(pieces: Sequence[_OpLaunches], sites: Sequence[CallSite]) -> dict[int, _Names]:
    # In a recorded one without its replay in the trace, a library call that ran nothing shows
    # nothing.
    ran_at: dict[int, _Names] = {
        at: () for at, site in enumerate(sites) if site.kind is SiteKind.EXTERN
    }
    ran_at |= _joined(pieces, sites)
    ran = {piece.site for piece in pieces if piece.ran}
    is_recorded = any(s.kind in _GENERATED and at not in ran for at, s in enumerate(sites))
    return {at: own for at, own in ran_at.items() if own or not is_recorded}


def _joined(pieces: Sequence[_OpLaunches], sites: Sequence[CallSite]) -> dict[int, _Names]:
    ran_at: dict[int, _Names] = {}
    for piece in pieces:
        if piece.site is not None and sites[piece.site].kind is SiteKind.EXTERN:
            ran_at[piece.site] = ran_at.get(piece.site, ()) + piece.ran
    return ran_at


def _of_recording(
    pieces: Sequence[_OpLaunches], replayed: _Names, sites: Sequence[CallSite]
) -> dict[int, _Names]:
    """Return what each library call became in the graph, from generated kernel to the next."""
    # A part of the graph that is not recorded runs by itself, as in a warm-up.
    recorded = [piece for piece in pieces if not piece.ran]
    kernels, stretches = _split(
        recorded, lambda piece: piece.site is not None and sites[piece.site].kind in _GENERATED
    )
    own_names = [aligning.device_names(sites[kernel.site or 0]) for kernel in kernels]
    known = frozenset(name for own in own_names for name in own)
    ran, between = _split(replayed, known.__contains__)
    if len(ran) != len(kernels) or any(n not in own for n, own in zip(ran, own_names, strict=True)):
        return {}
    ran_at = _joined([piece for piece in pieces if piece.ran], sites)
    for stretch, own in zip(stretches, between, strict=True):
        ran_at |= _joined(_with_names(stretch, own), sites)
    return ran_at


def _split(
    items: Sequence[_T], is_divider: Callable[[_T], bool]
) -> tuple[list[_T], list[list[_T]]]:
    """Return the dividers, and what is before, between and after them."""
    dividers, between = list[_T](), [list[_T]()]
    for item in items:
        if is_divider(item):
            dividers.append(item)
            between.append([])
        else:
            between[-1].append(item)
    return dividers, between


def _with_names(stretch: Sequence[_OpLaunches], replayed: Sequence[str]) -> list[_OpLaunches]:
    """Assign each piece the events of its calls; none where the numbers differ."""
    # A memset of no bytes becomes nothing; of a lone piece it does not matter which.
    calls = [piece.calls for piece in stretch]
    if sum(calls) != len(replayed):
        calling = [piece for piece in stretch if piece.calls]
        return [replace(calling[0], ran=tuple(replayed))] if len(calling) == 1 else []
    ends = list(accumulate(calls))
    return [
        replace(piece, ran=tuple(replayed[end - piece.calls : end]))
        for piece, end in zip(stretch, ends, strict=True)
    ]


def confirmed_kernels(
    invocations: Sequence[Invocation], graphs: Sequence[GraphInstance]
) -> tuple[tuple[int, LibraryKernels], ...]:
    """Return what each library call launched in the completely matched replays."""
    # A warm-up may launch something else than the replays do; a later run without warm-up uses
    # these. A graph whose replays differ is left out.
    replays = [each for each in invocations if each.graph is not None and each.call.is_replay]
    distinct = {(each.graph, each.call.pattern, id(each.matches)): each for each in replays}
    settled: dict[int, set[LibraryKernels]] = {}
    for each in distinct.values():
        if each.graph is not None and _is_complete(each):
            settled.setdefault(each.graph, set()).add(_kernels(each, graphs[each.graph]))
    return tuple((graph, every.pop()) for graph, every in settled.items() if len(every) == 1)


def _is_complete(invocation: Invocation) -> bool:
    is_known = all(match.gap in (None, GapReason.WRAPPER_GLUE) for match in invocation.matches)
    is_stored = any(match.evidence is SiteEvidence.STORED_KERNELS for match in invocation.matches)
    return is_known and not is_stored


def _kernels(invocation: Invocation, graph: GraphInstance) -> LibraryKernels:
    ran = ran_at_sites(invocation.call.pattern, invocation.matches)
    return tuple(
        (at, ran.get(at, ())) for at, s in enumerate(graph.call_sites) if s.kind is SiteKind.EXTERN
    )
