"""Tracks: names, parents and order, and which slices fit on one.

Perfetto closes the innermost open slice of a track, so crossing slices need tracks of their own,
and equal times follow the order of the file.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush

import numpy as np
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from profiler_ext.exporters.perfetto.packets import PacketWriter, Slices
from profiler_ext.records.events import Ints
from profiler_ext.records.recording import Settings

_PROFILER_RANK, _INTERNAL_RANK = 1_000_000, 1_000_001


class FreeLanes:
    """Assigns spans, in start order, to the first free lane."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._closing: list[tuple[int, int]] = []
        self._lanes = 0

    def take(self, start_ns: int, end_ns: int) -> int:
        """Open a span in the first free lane."""
        while self._closing and self._closing[0][0] <= start_ns:
            heappush(self._free, heappop(self._closing)[1])
        lane = heappop(self._free) if self._free else self._lanes
        self._lanes = max(self._lanes, lane + 1)
        heappush(self._closing, (end_ns, lane))
        return lane


class NestingLanes:
    """Assigns spans, in start order, to the first lane where they nest.

    A segment tree holds the latest end that fits a lane, or any lane below a node, so that many
    lanes are cheap: at ``_lanes + n`` that of lane ``n``, at ``n`` the maximum of ``2n`` and ``2n +
    1``.
    """

    def __init__(self) -> None:
        self._open: list[list[int]] = []
        self._closing: list[tuple[int, int]] = []
        self._lanes = 1
        self._latest: list[float] = [math.inf, math.inf]

    def take(self, start_ns: int, end_ns: int) -> int:
        """Open a span in the first lane in which it crosses no other."""
        while self._closing and self._closing[0][0] <= start_ns:
            closed = heappop(self._closing)[1]
            ends = self._open[closed]
            ends.pop()
            self._set(closed, ends[-1] if ends else math.inf)
        at = 1
        while at < self._lanes:
            at = 2 * at if self._latest[2 * at] >= end_ns else 2 * at + 1
        lane = at - self._lanes
        if lane == len(self._open):
            self._open.append([])
        if lane + 1 == self._lanes:
            self._grow()
        self._open[lane].append(end_ns)
        heappush(self._closing, (end_ns, lane))
        self._set(lane, end_ns)
        return lane

    def _set(self, lane: int, latest_ns: float) -> None:
        at = self._lanes + lane
        self._latest[at] = latest_ns
        while at > 1:
            at, above = at // 2, max(self._latest[at], self._latest[at ^ 1])
            if self._latest[at] == above:
                return
            self._latest[at] = above

    def _grow(self) -> None:
        leaves = self._latest[self._lanes :] + [math.inf] * self._lanes
        self._lanes *= 2
        self._latest = [math.inf] * self._lanes + leaves
        for at in range(self._lanes - 1, 0, -1):
            self._latest[at] = max(self._latest[2 * at], self._latest[2 * at + 1])


def assign_lanes(start_ns: Ints, end_ns: Ints, nesting: bool) -> list[Ints]:
    """Assign slices to the first lane in which they cross no other.

    Each lane is in start order, outer before inner, as the file needs it: an end at the time of a
    begin comes first.
    """
    order = np.lexsort((-end_ns, start_ns))
    lanes = _lanes(start_ns[order], end_ns[order], nesting)
    return [order[lanes == number] for number in range(lanes.max(initial=-1) + 1)]


def _lanes(start_ns: Ints, end_ns: Ints, nesting: bool) -> Ints:
    """Return the lane of each slice, in start order, outer before inner.

    Once all slices have ended, what follows is independent. So only stretches between such times
    that need a second lane are processed one by one.
    """
    lanes = np.zeros(len(start_ns), np.int64)
    latest_ns = np.maximum.accumulate(end_ns)
    stretch = np.concatenate(([0], np.cumsum(start_ns[1:] >= latest_ns[:-1])))[: len(start_ns)]
    crossing = _crossing(start_ns, end_ns) if nesting else np.bincount(stretch)[stretch] > 1
    several = np.flatnonzero(np.isin(stretch, np.unique(stretch[crossing])))
    taken = NestingLanes() if nesting else FreeLanes()
    times_ns = zip(start_ns[several].tolist(), end_ns[several].tolist(), strict=True)
    lanes[several] = [taken.take(*each) for each in times_ns]
    return lanes


def _crossing(start_ns: Ints, end_ns: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return whether each slice, on the viewer's stack, would be closed by another's end.

    At each depth begins and ends alternate: if slices nest, the n-th begin at a depth has the n-th
    end there.
    """
    until = np.searchsorted(np.sort(end_ns), start_ns, "right")
    # Without the zero-length slices that begin with each slice, itself or later.
    empty = np.concatenate(([0], np.cumsum(start_ns == end_ns)))
    pending: Ints = empty[np.searchsorted(start_ns, start_ns, "right")] - empty[:-1]
    ended = until - pending
    numbers = np.arange(len(start_ns))
    # Of those that end together the inner ends first; one without length begins after the others.
    without_length = start_ns == end_ns
    inner_first = np.where(without_length, numbers, -numbers)
    ending = np.lexsort((inner_first, without_length, end_ns))
    depth_of_end = np.searchsorted(ended, numbers, "right") - numbers - 1
    begun = np.argsort(numbers - ended, kind="stable")
    gone = ending[np.argsort(depth_of_end, kind="stable")]
    crossing = np.zeros(len(start_ns), np.bool_)
    crossing[begun[begun != gone]] = True
    return crossing


class Tracks:
    """Describes tracks and draws slices on them.

    In comparisons group names start with the side, and processes are groups: two runs can share a
    process number, which the viewer would merge.
    """

    def __init__(self, writer: PacketWriter, side: str = "") -> None:
        self._writer = writer
        self._side = side
        self._processes: dict[int, int] = {}
        self._uuid = writer.first_id
        self._groups: dict[str, int] = {}

    def track(self, name: str, parent: int | None = None, rank: int = 0) -> int:
        """Describe a track, or a group if it has children."""
        self._placed(name, parent, rank)
        return self._uuid

    def group(self, name: str, rank: int) -> int:
        """Return a group, described on first use."""
        if name not in self._groups:
            self._groups[name] = self.track(name, rank=rank)
        return self._groups[name]

    def process(self, pid: int, name: str, rank: int) -> int:
        """Describe a process."""
        if self._side:
            self._processes[pid] = self.track(name, rank=rank)
            return self._processes[pid]
        descriptor = self._described()
        descriptor.process.pid = pid
        descriptor.process.process_name = name.encode("utf-8", "replace").decode()
        descriptor.sibling_order_rank = rank
        return self._uuid

    def thread(self, pid: int, tid: int, name: str) -> int:
        """Describe a thread."""
        if self._side:
            return self.track(name, self._processes[pid])
        descriptor = self._described()
        descriptor.thread.pid = pid
        descriptor.thread.tid = tid
        descriptor.thread.thread_name = name.encode("utf-8", "replace").decode()
        return self._uuid

    def counter(self, name: str, unit: str, parent: int, rank: int) -> int:
        """Describe a counter."""
        descriptor = self._placed(name, parent, rank)
        descriptor.counter.unit_name = unit
        return self._uuid

    def draw(
        self, name: str, parent: int | None, rank: int, slices: Slices, nesting: bool = False
    ) -> None:
        """Draw slices on a track, and on more tracks of the same name (one row in the viewer)."""
        for lane in assign_lanes(slices.start_ns, slices.end_ns, nesting):
            self._writer.slices(self.track(name, parent, rank), slices, lane)

    def draw_calls(self, thread: int, name: str, slices: Slices) -> None:
        """Draw nested slices, as the calls of a thread are."""
        for number, lane in enumerate(assign_lanes(slices.start_ns, slices.end_ns, nesting=True)):
            track = self.track(f"{name} (crossing)", thread) if number else thread
            self._writer.slices(track, slices, lane)

    def _placed(self, name: str, parent: int | None, rank: int) -> pb.TrackDescriptor:
        descriptor = self._described()
        named = f"{self._side}: {name}" if self._side and parent is None else name
        descriptor.name = named.encode("utf-8", "replace").decode()
        descriptor.child_ordering = pb.TrackDescriptor.EXPLICIT
        descriptor.sibling_order_rank = rank
        if parent is not None:
            descriptor.parent_uuid = parent
        return descriptor

    def _described(self) -> pb.TrackDescriptor:
        self._uuid += 1
        descriptor = self._writer.descriptor()
        descriptor.uuid = self._uuid
        return descriptor


def profiler_group(tracks: Tracks, settings: Settings) -> int:
    """Return the group of the profiler's own tracks, below the processes."""
    return tracks.group(with_rank("profiler", settings), _PROFILER_RANK)


def internal_group(tracks: Tracks, settings: Settings) -> int:
    """Return the last group, for what only queries read."""
    return tracks.group(with_rank("_internal", settings), _INTERNAL_RANK)


def with_rank(name: str, settings: Settings) -> str:
    """Return a group's name, prefixed with the rank where there are several."""
    return name if settings.world_size == 1 else f"rank {settings.rank}: {name}"
