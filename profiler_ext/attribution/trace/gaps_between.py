"""Owns what lies between spans of time: before, between and after those that lie in a window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler_ext.records import Ints


@dataclass(frozen=True, slots=True)
class Gaps:
    """What of windows no span covers; in order, none of them empty.

    Attributes:
        window: index of the window that each is of.
        following: index of the span that ends it, or would; as many as there are spans after all.
        start_ns: when it begins.
        end_ns: when it ends.
    """

    window: Ints
    following: Ints
    start_ns: Ints
    end_ns: Ints


def gaps_between(start_ns: Ints, end_ns: Ints, begins: Ints, ends: Ints) -> Gaps:
    """Return what lies in windows and in no span.

    Args:
        start_ns: when each span begins; they are in order and do not overlap.
        end_ns: when each ends.
        begins: when each window begins.
        ends: when it ends.

    Returns:
        The gaps, by window.
    """
    firsts = np.searchsorted(end_ns, begins, side="right")
    lasts = np.maximum(firsts, np.searchsorted(start_ns, ends, side="left"))
    count = lasts - firsts + 1
    window = np.repeat(np.arange(len(begins)), count)
    following = np.arange(len(window)) - np.repeat(np.cumsum(count) - count - firsts, count)
    is_first, is_last = following == firsts[window], following == lasts[window]
    opens = np.where(is_first, begins[window], np.append(end_ns, 0)[following - 1])
    closes = np.where(is_last, ends[window], np.append(start_ns, 0)[following])
    is_gap = np.flatnonzero(closes > opens)
    return Gaps(window[is_gap], following[is_gap], opens[is_gap], closes[is_gap])
