"""Checks CUDA graph replays against each other; an unconfirmed match becomes a gap.

In a replay a library's kernels have no operator, so lost or reordered events go unnoticed. A replay
is complete if it ran just what its recording did, or what another replay did. Of any other only
what such a one confirms stays; unless it ran new library kernels between the same generated ones:
libraries have other kernels for another size, and then those between two anchors belong to the one
call there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.attribution.alignment import aligning, loops, verification
from profiler_ext.attribution.alignment.invocations import Aligner, Invocation
from profiler_ext.attribution.graph_calls import Match, WorkItem
from profiler_ext.records import evidence, gaps, provenance
from profiler_ext.records.vocabulary import SiteKind

_GENERATED = (SiteKind.TRITON, SiteKind.TRITON_TEMPLATE, SiteKind.USER_TRITON)
_MAX_REFERENCES = 32  # number of other replays, the most frequent ones, that may confirm one
_BY_ANCHORS = (evidence.SiteEvidence.REPLAY_ORDER, evidence.SiteEvidence.REPLAY_FAMILIES)
_GAP = Match(gap=gaps.GapReason.ALIGNMENT_MISMATCH)


@dataclass(frozen=True, slots=True)
class _LaunchOrder:
    """What a call of a graph runs, in order: names, and the call site of each."""

    names: tuple[str, ...]
    sites: tuple[int | None, ...]


def drop_unconfirmed(
    invocations: Sequence[Invocation], aligner: Aligner, order: verification.StreamOrder
) -> tuple[Invocation, ...]:
    """Replace the matches of replays by gaps where nothing confirms them."""
    # aligner: has the call sites of each graph, and their known kernels
    replays: dict[int, list[Invocation]] = defaultdict(list)
    for each in invocations:
        if each.graph is not None and each.call.is_replay:
            replays[each.graph].append(each)
    checked: dict[int, Invocation] = {}
    for calls in replays.values():
        checker = _ReplayChecker(calls, aligner, order)
        checked |= {each.call.marker: checker.checked(each) for each in calls}
    return tuple(checked.get(each.call.marker, each) for each in invocations)


class _ReplayChecker:
    """Checks the replays of one graph: equal ones once, and their matches stay one object."""

    def __init__(
        self, calls: Sequence[Invocation], aligner: Aligner, order: verification.StreamOrder
    ) -> None:
        self._aligner, self._order = aligner, order
        distinct = {_replay_key(each): each for each in calls}
        self._pairs = {replay_key: self._pair(each) for replay_key, each in distinct.items()}
        self._every = Counter(self._pairs[_replay_key(each)][0] for each in calls)
        self._most = [order for order, _ in self._every.most_common(_MAX_REFERENCES + 1)]
        self._resized = {
            replay_key: self._is_resized(each) for replay_key, each in distinct.items()
        }
        self._known: dict[object, tuple[Match, ...]] = {}

    def checked(self, invocation: Invocation) -> Invocation:
        replay_key = _replay_key(invocation)
        is_reselected = self._resized[replay_key] and self._order.is_in_trace_order(invocation.call)
        if (replay_key, is_reselected) not in self._known:
            self._known[replay_key, is_reselected] = self._checked(
                invocation, is_reselected
            ).matches
        return replace(invocation, matches=self._known[replay_key, is_reselected])

    def _pair(self, invocation: Invocation) -> tuple[_LaunchOrder, _LaunchOrder | None]:
        kernels = self._aligner.known_kernels(_graph(invocation)).kernels
        aligned = zip(invocation.call.work, invocation.matches, strict=True)
        pairs = [(item.name, match.site) for item, match in aligned if _is_open(item, match)]
        ran = _LaunchOrder(tuple(name for name, _ in pairs), tuple(site for _, site in pairs))
        return ran, _recorded(invocation, self._sites(invocation), kernels)

    def _checked(self, invocation: Invocation, is_reselected: bool) -> Invocation:
        if self._is_confirmed(invocation):
            return invocation
        if is_reselected:
            graph = _graph(invocation)
            matches = self._aligner.align(graph, invocation.call, is_reselected=True)
            return _without_open_ends(replace(invocation, matches=matches), self._sites(invocation))
        ran, recorded = self._pairs[_replay_key(invocation)]
        others = [other for other in self._most if other != ran][:_MAX_REFERENCES]
        return _confirmed(invocation, ran, [recorded] if recorded else others)

    def _is_confirmed(self, invocation: Invocation) -> bool:
        """Tell whether another ran the very same, or what was recorded, or nothing contradicts."""
        ran, recorded = self._pairs[_replay_key(invocation)]
        is_recorded = recorded is not None and recorded.names == ran.names
        is_alone = recorded is None and len(self._every) == 1
        return self._every[ran] > 1 or is_alone or is_recorded

    def _is_resized(self, invocation: Invocation) -> bool:
        """Tell whether libraries may have chosen kernels for another size."""
        ran, recorded = self._pairs[_replay_key(invocation)]
        lacks_ops = any(item.on_device and not item.replayed for item in invocation.call.work)
        if recorded is None or lacks_ops or self._is_confirmed(invocation):
            return False
        return _is_of_another_size(ran, recorded, self._sites(invocation))

    def _sites(self, invocation: Invocation) -> tuple[provenance.CallSite, ...]:
        return self._aligner.sites(_graph(invocation))


def _graph(invocation: Invocation) -> int:
    assert invocation.graph is not None
    return invocation.graph


def _replay_key(invocation: Invocation) -> object:
    # The matches are kept, as their id is part of the key.
    return invocation.call.pattern, id(invocation.matches)


def _is_of_another_size(
    ran: _LaunchOrder, recorded: _LaunchOrder, sites: Sequence[provenance.CallSite]
) -> bool:
    """Tell whether libraries ran other kernels than recorded, and all generated ones in order."""
    # A replay that lost or reordered events has no new ones.
    pairs = zip(recorded.names, recorded.sites, strict=True)
    kernels = {name for name, at in pairs if at is not None and sites[at].kind in _GENERATED}
    in_order = [[n for n in each.names if n in kernels] for each in (ran, recorded)]
    return in_order[0] == in_order[1] and bool(Counter(ran.names) - Counter(recorded.names))


def _without_open_ends(invocation: Invocation, sites: Sequence[provenance.CallSite]) -> Invocation:
    """Remove matches with one anchor only: another call's first launch may be there."""
    aligned = [
        None if match.site is None else sites[match.site].kind for match in invocation.matches
    ]
    anchors = [at for at, kind in enumerate(aligned) if kind in _GENERATED] or [len(aligned)]
    matches = tuple(
        _GAP if match.evidence in _BY_ANCHORS and (at < anchors[0] or at > anchors[-1]) else match
        for at, match in enumerate(invocation.matches)
    )
    return replace(invocation, matches=matches)


def _is_open(item: WorkItem, match: Match) -> bool:
    return item.on_device and match.gap is not gaps.GapReason.WRAPPER_GLUE


def _recorded(
    invocation: Invocation,
    sites: Sequence[provenance.CallSite],
    kernels: Mapping[int, tuple[str, ...]],
) -> _LaunchOrder | None:
    """Return what a call runs without an operator if it runs the known kernels, if all are."""
    aligned = zip(invocation.call.work, invocation.matches, strict=True)
    called = {match.site for item, match in aligned if not item.on_device}
    pairs = list[tuple[str, int]]()
    for at, site in enumerate(sites):
        if at in called or site.kind is SiteKind.CPP:
            continue
        if loops.is_in_loop(site) or (site.kind is SiteKind.EXTERN and at not in kernels):
            return None
        names = kernels[at] if site.kind is SiteKind.EXTERN else aligning.device_names(site)[-1:]
        pairs += [(name, at) for name in names]
    return _LaunchOrder(tuple(name for name, _ in pairs), tuple(at for _, at in pairs))


def _confirmed(
    invocation: Invocation, ran: _LaunchOrder, others: Sequence[_LaunchOrder]
) -> Invocation:
    """Keep the matches that another call confirms: the same name of the same site there."""
    confirmed = set[int]()
    for other in others:
        if len(confirmed) < len(ran.names):
            confirmed.update(_same(ran, other))
    aligned = zip(invocation.call.work, invocation.matches, strict=True)
    devices = [at for at, (item, match) in enumerate(aligned) if _is_open(item, match)]
    unconfirmed = {at for place, at in enumerate(devices) if place not in confirmed}
    matches = tuple(
        _GAP if at in unconfirmed else match for at, match in enumerate(invocation.matches)
    )
    return replace(invocation, matches=matches)


def _same(ran: _LaunchOrder, other: _LaunchOrder) -> list[int]:
    """Return the positions at which another call ran the same for the same site."""
    # Where both ran as much, nothing can have moved up.
    codes = {name: code for code, name in enumerate(dict.fromkeys(ran.names + other.names))}
    rows, columns = ([codes[name] for name in each.names] for each in (ran, other))
    kinds = np.zeros(len(rows), dtype=np.int64)
    names = aligning.Names(np.array(rows, np.int64), kinds, np.array([columns], np.int64))
    pairs = aligning.agreed_pairs(names) or []  # what cannot be compared confirms nothing
    is_same_length = len(rows) == len(columns)
    return [
        at
        for at, place in pairs
        if ran.sites[at] == other.sites[place] and (at == place or not is_same_length)
    ]
