"""Owns how spans of time are cut where something changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profiler_ext.records import Ints


@dataclass(frozen=True, slots=True)
class Cuts:
    """Parts of spans, in order; those of a span one after the other.

    Attributes:
        span: index of the span that each is of.
        segment: how many changes lie before it, so which segment of time it is in.
        start_ns: when it begins.
        duration_ns: how long it is; none is empty, if no span is.
    """

    span: Ints
    segment: Ints
    start_ns: Ints
    duration_ns: Ints

    def at(self, rows: Ints | slice) -> Cuts:
        """Return some of them."""
        return Cuts(*(getattr(self, name)[rows] for name in self.__slots__))


def cut_at(times_ns: Ints, start_ns: Ints, end_ns: Ints) -> Cuts:
    """Cut spans where times lie within them.

    Args:
        times_ns: the times, in order, none twice.
        start_ns: when each span begins.
        end_ns: when each ends.

    Returns:
        The parts; together they are the spans.
    """
    first = np.searchsorted(times_ns, start_ns, side="right").astype(np.int64, copy=False)
    last = np.searchsorted(times_ns, end_ns, side="left").astype(np.int64, copy=False)
    return cut_between(times_ns.take, (first, last), start_ns, end_ns)


def cut_between(
    times_ns: Callable[[Ints], Ints], within: tuple[Ints, Ints], start_ns: Ints, end_ns: Ints
) -> Cuts:
    """Cut spans where it is known which times lie within them.

    Args:
        times_ns: returns times by their indices; those within a span are in order.
        within: index of the first time within each span, and of the first after them.
        start_ns: when each span begins.
        end_ns: when each ends.

    Returns:
        The parts; together they are the spans.
    """
    first, last = within
    counts = np.maximum(last - first, 0) + 1
    span = np.repeat(np.arange(len(start_ns)), counts)
    segment = np.arange(len(span)) - (np.cumsum(counts) - counts)[span] + first[span]
    is_first = segment == first[span]
    starts, later = start_ns[span], np.flatnonzero(~is_first)
    starts[later] = times_ns(segment[later] - 1)
    is_last = np.append(is_first[1:], True)[: len(span)]
    ends = np.where(is_last, end_ns[span], np.append(starts[1:], 0)[: len(span)])
    return Cuts(span, segment, starts, ends - starts)
