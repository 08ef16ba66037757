"""Which node of a CUDA graph each event of a replay is, by name, order and time.

A node starts after those that it waits for, so equal nodes that wait for each other run in their
order. Of equal nodes in branches side by side the times of what is known before and after them must
leave one possibility, or the stream: a branch without forks runs in one, as what is known of it
shows.
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
    streams: Ints


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
        self._branch = _branches(len(kinds), self._before, self._after)
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
        """Decide the groups whose order is open, by the times and streams of what is known."""
        event_of = {node: at for at, node in enumerate(nodes.tolist()) if node >= 0}
        groups = [_OpenGroup(*_events_and_nodes(group, event_of)) for group in self._groups]
        groups = [group for group in groups if group.candidates]
        for group in groups:
            nodes[list(group.candidates)] = OPEN
        times = _Times(replay, self._before, self._after, event_of)
        if not times.are_in_order() or any(len(group) > _MAX_GROUP for group in self._groups):
            return nodes
        streams = _Streams(replay.streams.tolist(), self._branch, event_of)
        decided = [(0, 0)]
        while decided:
            decided = [each for group in groups for each in group.decided(times, streams)]
            for at, node in decided:
                nodes[at] = node
        return nodes


def _events_and_nodes(group: Sequence[int], event_of: dict[int, int]) -> tuple[list[int], set[int]]:
    """Take the events of equal nodes out of those whose node is known."""
    events = [event_of.pop(node) for node in group if node in event_of]
    return (events, set(group)) if len(events) == len(group) else ([], set())


class _OpenGroup:
    """Equal nodes whose order is open, with the events that are theirs."""

    def __init__(self, events: Sequence[int], nodes: set[int]) -> None:
        self.candidates = {at: set(nodes) for at in events}

    def decided(self, times: _Times, streams: _Streams) -> list[tuple[int, int]]:
        """Return the events that only one node is left for, and take both out."""
        for at, nodes in self.candidates.items():
            nodes -= {node for node in nodes if not times.are_possible(at, node)}
        single = [(at, next(iter(n))) for at, n in self.candidates.items() if len(n) == 1]
        if len({node for _, node in single}) < len(single):
            self.candidates.clear()  # two events of one node: the times cannot be trusted
            return []
        decided = single or list(streams.decided(self.candidates))
        for at, node in decided:
            del self.candidates[at]
            times.event_of[node] = at
        for nodes in self.candidates.values():
            nodes -= {node for _, node in decided}
        return decided


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
        self._before, self._after, self.event_of = before, after, event_of

    def are_in_order(self) -> bool:
        """Tell whether each known event starts when those that it waits for have ended."""
        # It may start earlier where the launch says so (programmatic dependent launch).
        known = self.event_of
        return all(
            self._end[known[before]] <= self._start[at]
            for node, at in known.items()
            for before in self._before.get(node, ())
            if before in known
        )

    def are_possible(self, at: int, node: int) -> bool:
        """Tell whether an event may be a node's, by the times of the nodes next to it."""
        known = self.event_of
        began, ended = self._start[at], self._end[at]
        before = (known[each] for each in self._before.get(node, ()) if each in known)
        after = (known[each] for each in self._after.get(node, ()) if each in known)
        return all(self._end[each] <= began for each in before) and all(
            self._start[each] >= ended for each in after
        )


class _Streams:
    """The streams of events, and the branch of each node."""

    def __init__(
        self, stream: Sequence[int], branch: Sequence[int], event_of: Mapping[int, int]
    ) -> None:
        self._stream, self._branch, self._event_of = stream, branch, event_of

    def decided(self, candidates: Mapping[int, set[int]]) -> Iterator[tuple[int, int]]:
        """Yield the open events that the streams of known ones decide, each with its node."""
        stream_of: dict[int, set[int]] = defaultdict(set)
        for node, at in self._event_of.items():
            stream_of[self._branch[node]].add(self._stream[at])
        if any(len(streams) > 1 for streams in stream_of.values()):
            return  # a branch is not in one stream
        nodes = sorted({node for own in candidates.values() for node in own})
        for stream in {self._stream[at] for at in candidates}:
            here = sorted(at for at in candidates if self._stream[at] == stream)
            there = [node for node in nodes if stream_of.get(self._branch[node]) == {stream}]
            is_one_branch = len({self._branch[node] for node in there}) == 1
            pairs = list(zip(here, there, strict=False))
            if is_one_branch and len(here) == len(there):
                yield from pairs if all(node in candidates[at] for at, node in pairs) else ()


def _branches(
    count: int, before: Mapping[int, list[int]], after: Mapping[int, list[int]]
) -> list[int]:
    """Number nodes, equal where they follow each other without a fork or a join."""
    branch: list[int] = []
    for at in range(count):
        source = before.get(at, [])
        follows = len(source) == 1 and source[0] < at and len(after[source[0]]) == 1
        branch.append(branch[source[0]] if follows else at)
    return branch


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
