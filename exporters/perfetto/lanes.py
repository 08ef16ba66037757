"""Owns the geometry: which slices fit on one track, and in which order they are written.

Perfetto closes the innermost open slice of a track, so slices that cross each other need
tracks of their own, and equal times are taken in the order of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from profiler_ext.exporters.perfetto.packets import Argument


class SliceContent(NamedTuple):
    """What a slice says.

    Attributes:
        constant: its encoded constant part.
        changing: its own arguments.
        flows_from: ids of the flows which start at it.
        flows_to: ids of the flows which end at it.
    """

    constant: bytes
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
    start_ns: int, end_ns: int, constant: bytes, changing: Mapping[str, Argument]
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


def split(spans: Iterable[Span], nesting: bool) -> list[list[Span]]:
    """Give each span the first lane in which it crosses no other.

    Args:
        spans: the spans, in any order.
        nesting: whether a span may lie within another of its lane.

    Returns:
        The lanes, each in the order of start, outer before inner.
    """
    lanes: list[list[Span]] = []
    open_ends: list[list[int]] = []
    for span in sorted(spans, key=_outer_first):
        lane = next((i for i, ends in enumerate(open_ends) if _fits(span, ends, nesting)), None)
        if lane is None:
            lane = len(lanes)
            lanes.append([])
            open_ends.append([])
        lanes[lane].append(span)
        open_ends[lane].append(span.end_ns)
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


def _fits(span: Span, ends: list[int], nesting: bool) -> bool:
    while ends and ends[-1] <= span.start_ns:
        ends.pop()
    return not ends or (nesting and span.end_ns <= ends[-1])
