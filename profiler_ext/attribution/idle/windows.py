"""Owns the windows that the CPU's time is cut into: each tells of itself what the whole tells.

What is made of a window on the way is small beside the trace, and stays in a processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from profiler_ext.attribution.idle.tracks import Spans
from profiler_ext.attribution.trace.lookups import Flags, Rows
from profiler_ext.records import Ints

_SPANS_AT_ONCE = 1 << 16


def windows(
    spans: Spans, grace_ns: Callable[[Rows], Ints], may_begin: Callable[[Rows], Flags]
) -> Iterator[Spans]:
    """Cut spans where all of them are over and one begins alone.

    Args:
        spans: in order of start.
        grace_ns: for how long after the spans of some events none may begin a window.
        may_begin: which events' spans may begin one.

    Yields:
        The spans of each window, of one at least; where they cannot be cut a window is long.
    """
    begin, over_ns = 0, spans.start_ns[:1]
    for first in range(0, len(spans.row), _SPANS_AT_ONCE):
        chunk = spans.of(slice(first, first + _SPANS_AT_ONCE))
        ends_ns = np.append(over_ns, chunk.end_ns + grace_ns(chunk.row))
        reached_ns = np.maximum.accumulate(ends_ns)
        is_alone = np.diff(chunk.start_ns, append=chunk.start_ns[-1:]) > 0
        starts = np.flatnonzero(is_alone & (chunk.start_ns > reached_ns[:-1]))
        starts = starts[may_begin(chunk.row[starts])]
        if len(starts):
            yield spans.of(slice(begin, first + starts[0]))
            begin = first + starts[0]
        over_ns = reached_ns[-1:]
    yield spans.of(slice(begin, None))
