"""Owns the geometry: which slices fit on one track, and in which order they are written.

Perfetto closes the innermost open slice of a track, so slices that cross each other need
tracks of their own, and equal times are taken in the order of the file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from profiler_ext.exporters.perfetto.packets import Argument, Constant


class SliceContent(NamedTuple):
    """What a slice says.

    Attributes:
        constant: its encoded constant part.
        changing: its own arguments.
        flows_from: ids of the flows which start at it.
        flows_to: ids of the flows which end at it.
    """

    constant: Constant
    changing: Mapping[str, Argument]
    flows_from: tuple[int, ...] = ()
    flows_to: tuple[int, ...] = ()


class Span(NamedTuple):
    """One slice to draw.

    Attributes:
        start_ns: start.
        end_ns: end.
        row: what ``say`` is asked for.
        say: makes what it says, when it is written: a million slices say too much to keep.
    """

    start_ns: int
    end_ns: int
    row: int
    say: Callable[[int], SliceContent]


def span_with(
    start_ns: int, end_ns: int, constant: Constant, changing: Mapping[str, Argument]
) -> Span:
    """Return a slice that is one of few, so that what it says is made at once.

    Args:
        start_ns: when it begins, in nanoseconds of the trace's clock.
        end_ns: when it ends.
        constant: the encoded part that many slices share.
        changing: the arguments of this one.
    """
    content = SliceContent(constant, changing)
    return Span(start_ns, end_ns, 0, lambda _: content)


class FreeLanes:
    """Which lanes are free: tells the first one that is when a span, in order of start, begins."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._closing: list[tuple[int, int]] = []
        self._lanes = 0

    def take(self, start_ns: int, end_ns: int) -> int:
        """Open a span in the first lane in which none is open.

        Args:
            start_ns: its start, not before that of the span before it.
            end_ns: its end.

        Returns:
            The lane's number.
        """
        while self._closing and self._closing[0][0] <= start_ns:
            heappush(self._free, heappop(self._closing)[1])
        lane = heappop(self._free) if self._free else self._lanes
        self._lanes = max(self._lanes, lane + 1)
        heappush(self._closing, (end_ns, lane))
        return lane


class NestingLanes:
    """What is open in each lane: tells the first in which a span, in order of start, fits.

    A span may lie within another of its lane.
    A tree has the latest end that fits a lane, or any lane below it, so that many lanes cost
    little: at ``_lanes + n`` that of lane ``n``, at ``n`` the greatest of ``2n`` and ``2n + 1``.
    """

    def __init__(self) -> None:
        self._open: list[list[int]] = []
        self._closing: list[tuple[int, int]] = []
        self._lanes = 1
        self._latest: list[float] = [math.inf, math.inf]

    def take(self, start_ns: int, end_ns: int) -> int:
        """Open a span in the first lane in which it crosses no other.

        Args:
            start_ns: its start, not before that of the span before it.
            end_ns: its end.

        Returns:
            The lane's number.
        """
        while self._closing and self._closing[0][0] <= start_ns:
            self._close(heappop(self._closing)[1])
        lane = self._first(end_ns)
        self._open[lane].append(end_ns)
        heappush(self._closing, (end_ns, lane))
        self._set(lane, end_ns)
        return lane

    def _first(self, end_ns: int) -> int:
        """Find the first lane that takes an end; there is always one that was never used."""
        at = 1
        while at < self._lanes:
            at = 2 * at if self._latest[2 * at] >= end_ns else 2 * at + 1
        lane = at - self._lanes
        if lane == len(self._open):
            self._open.append([])
        if lane + 1 == self._lanes:
            self._grow()
        return lane

    def _close(self, lane: int) -> None:
        ends = self._open[lane]
        ends.pop()
        self._set(lane, ends[-1] if ends else math.inf)

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


def split(spans: Iterable[Span], nesting: bool) -> list[list[Span]]:
    """Give each span the first lane in which it crosses no other.

    Args:
        spans: the spans, in any order.
        nesting: whether a span may lie within another of its lane.

    Returns:
        The lanes, each in the order of start, outer before inner.
    """
    lanes: list[list[Span]] = []
    ordered = sorted(spans, key=_outer_first)
    if ordered and _follow_each_other(ordered):
        return [ordered]
    open_lanes = NestingLanes() if nesting else FreeLanes()
    for span in ordered:
        lane = open_lanes.take(span.start_ns, span.end_ns)
        if lane == len(lanes):
            lanes.append([])
        lanes[lane].append(span)
    return lanes


def in_file_order(lane: Iterable[Span]) -> Iterator[tuple[int, Span | None]]:
    """Yield the begins and ends of a lane as they must stand in the file.

    Args:
        lane: one lane of ``split``.

    Yields:
        A time with the span that begins there, or with ``None`` where the innermost ends.
    """
    open_ends: list[int] = []
    for span in lane:
        while open_ends and open_ends[-1] <= span.start_ns:
            yield open_ends.pop(), None
        yield span.start_ns, span
        open_ends.append(span.end_ns)
    while open_ends:
        yield open_ends.pop(), None


def _outer_first(span: Span) -> tuple[int, int]:
    return span.start_ns, -span.end_ns


def _follow_each_other(spans: Iterable[Span]) -> bool:
    return all(before.end_ns <= after.start_ns for before, after in pairwise(spans))
