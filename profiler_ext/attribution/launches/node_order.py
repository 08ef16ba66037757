"""Which node of a CUDA graph each event of a replay is, by name, order and time.

A node starts after those that it waits for, so equal nodes that wait for each other run in their
order. Of equal nodes in branches side by side the times of what is known before and after them must
leave one possibility.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.records.events import Ints

DIFFERS, OPEN = -2, -3  # no node: the replay ran something else; several nodes are possible
_MAX_GROUP = 64  # so many equal nodes side by side are compared at most


class Replay(NamedTuple):
    """What one replay ran, in order of start."""

    kinds: Ints  # as the nodes' kinds are numbered, ``NO_ROW`` for one that the graph lacks
    start_ns: Ints
    end_ns: Ints


class NodeOrder:
    """The order in which a graph's nodes run.

    Args:
        kinds: the number of what each node runs, in the order of capture.
        edges: pairs of nodes, the second of which waits for the first.
        outcomes: a number for each node, equal where it does not matter which of two nodes ran.
    """

    def __init__(self, kinds: Ints, edges: Ints, outcomes: Ints) -> None:
        self._kinds, self._outcomes = kinds, outcomes
        self._before: Mapping[int, list[int]] = _grouped((b, a) for a, b in edges.tolist())
        self._after: Mapping[int, list[int]] = _grouped(edges.tolist())
        self._by_kind = np.argsort(kinds, kind="stable")
        self._count = np.bincount(kinds, minlength=int(kinds.max(initial=-1)) + 1)
        self._groups = () if self._is_chain() else tuple(self._side_by_side())
        self._known: dict[bytes, Ints] = {}

    def match(self, replay: Replay) -> Ints:
        """Return the node of each event, :data:`DIFFERS` or :data:`OPEN`."""
        key = replay.kinds.tobytes()
        if key not in self._known:
            self._known[key] = self._by_rank(replay.kinds)
        nodes = self._known[key]
        return self._by_time(nodes.copy(), replay) if self._groups else nodes

    def _by_rank(self, kinds: Ints) -> Ints:
        """Return for the n-th event of a kind its n-th node, if there are as many."""
        nodes = np.full(len(kinds), DIFFERS, dtype=np.int64)
        ran = np.bincount(kinds[kinds != NO_ROW], minlength=len(self._count))
        fits = np.append(ran == self._count, False)
        rows = np.flatnonzero(fits[kinds])
        rows = rows[np.argsort(kinds[rows], kind="stable")]
        nodes[rows] = self._by_kind[fits[self._kinds[self._by_kind]]]
        return nodes

    def _is_chain(self) -> bool:
        return all(at - 1 in self._before.get(at, ()) for at in range(1, len(self._kinds)))

    def _side_by_side(self) -> Iterator[list[int]]:
        """Yield groups of equal nodes whose order is open."""
        ancestors: list[int] = []  # of each node, a bit for each ancestor
        for at in range(len(self._kinds)):
            own = 0
            for before in self._before.get(at, ()):
                own |= ancestors[before] | 1 << before
            ancestors.append(own)
        for kind in range(len(self._count)):
            same = np.flatnonzero(self._kinds == kind).tolist()
            for group in _open_groups(same, ancestors):
                if len(np.unique(self._outcomes[group])) > 1:
                    yield group

    def _by_time(self, nodes: Ints, replay: Replay) -> Ints:
        """Decide the groups whose order is open by the times of what is known."""
        event_of = {node: at for at, node in enumerate(nodes.tolist()) if node >= 0}
        candidates: dict[int, set[int]] = {}
        for group in self._groups:
            events = [event_of.pop(node) for node in group if node in event_of]
            if len(events) == len(group):
                candidates |= {at: set(group) for at in events}
        for at in candidates:
            nodes[at] = OPEN
        times = _Times(replay, self._before, self._after, event_of)
        if not times.are_in_order() or any(len(each) > _MAX_GROUP for each in self._groups):
            return nodes
        while decided := times.decided(candidates):
            for at, node in decided:
                nodes[at] = node
        return nodes


class _Times:
    """The times of the events whose nodes are known."""

    def __init__(
        self,
        replay: Replay,
        before: Mapping[int, list[int]],
        after: Mapping[int, list[int]],
        event_of: dict[int, int],
    ) -> None:
        self._start, self._end = replay.start_ns.tolist(), replay.end_ns.tolist()
        self._before, self._after, self._event_of = before, after, event_of

    def are_in_order(self) -> bool:
        """Tell whether each known event starts when those that it waits for have ended."""
        # It may start earlier where the launch says so (programmatic dependent launch).
        known = self._event_of
        return all(
            self._end[known[before]] <= self._start[at]
            for node, at in known.items()
            for before in self._before.get(node, ())
            if before in known
        )

    def decided(self, candidates: dict[int, set[int]]) -> list[tuple[int, int]]:
        """Return the events that only one node is left for, and take both out."""
        for at, nodes in candidates.items():
            nodes -= {node for node in nodes if not self._is_possible(at, node)}
        decided = [(at, *nodes) for at, nodes in candidates.items() if len(nodes) == 1]
        if len({node for _, node in decided}) < len(decided):
            candidates.clear()  # two events of one node: the times cannot be trusted
            return []
        for at, node in decided:
            del candidates[at]
            self._event_of[node] = at
            for nodes in candidates.values():
                nodes.discard(node)
        return [(at, node) for at, node in decided]

    def _is_possible(self, at: int, node: int) -> bool:
        known = self._event_of
        began, ended = self._start[at], self._end[at]
        before = (known[each] for each in self._before.get(node, ()) if each in known)
        after = (known[each] for each in self._after.get(node, ()) if each in known)
        return all(self._end[each] <= began for each in before) and all(
            self._start[each] >= ended for each in after
        )


def _grouped(pairs: Iterator[tuple[int, int]] | Sequence[Sequence[int]]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return dict(groups)


def _open_groups(same: Sequence[int], ancestors: Sequence[int]) -> Iterator[list[int]]:
    """Split equal nodes where all before wait for none after; yield parts of several nodes."""
    begin = 0
    for cut in range(1, len(same) + 1):
        group = [*same[begin:cut]]
        if cut < len(same) and not all(
            ancestors[later] >> earlier & 1 for later in same[cut:] for earlier in group
        ):
            continue
        if len(group) > 1:
            yield group
        begin = cut
