"""Owns the tracks of all controls side by side, so that many threads cost no more than many events.

The first two controls take turns and change at the same times. A change of any other is a key: the
control, and how many moments of the others came before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from profiler_ext.attribution.idle.cpu_causes import NO_CAUSE, Causes
from profiler_ext.attribution.idle.tracks import Spans, Track, track
from profiler_ext.attribution.trace.cutting import Cuts, cut_between
from profiler_ext.attribution.trace.lookups import NO_ROW, Rows
from profiler_ext.records import Ints, sorted_distinct

_FOREVER_NS = np.iinfo(np.int64).max // 4
_SHARED_GROUPS = 2


@dataclass(frozen=True, slots=True)
class Tracks:
    """What each control did in time: the segment before the first change, and from each one on.

    Attributes:
        times_ns: when the first two controls change, in order, none twice.
        moments_ns: when any of the others does, in order, none twice.
        keys: the control and the moment of each change of the others, in order.
        cause: the number of a cause for each segment, one more than there are changes: those of
            the first control, those of the second, those of the others.
        row: the innermost event of each, or ``NO_ROW``.
    """

    times_ns: Ints
    moments_ns: Ints
    keys: Ints
    cause: Causes
    row: Rows

    def segments_at(
        self, group: Ints, times_ns: Ints, side: Literal["left", "right"] = "right"
    ) -> Ints:
        """Return the segments of controls at times.

        Args:
            control: the controls.
            times_ns: a time for each.
            side: ``left`` if what changes at a time comes after it.

        Returns:
            How many changes came before, those of the controls before included.
        """
        count = len(self.times_ns)
        segments: Ints = group * count + np.searchsorted(self.times_ns, times_ns, side=side)
        separate = np.flatnonzero(group >= _SHARED_GROUPS)
        moments = np.searchsorted(self.moments_ns, times_ns[separate], side=side)
        keys = group[separate] * (len(self.moments_ns) + 1) + moments
        segments[separate] = _SHARED_GROUPS * count + np.searchsorted(self.keys, keys, side="right")
        return segments

    def cut(self, group: Ints, start_ns: Ints, end_ns: Ints) -> Cuts:
        """Cut spans of time where what their controls do changes.

        Args:
            control: the control of each span.
            start_ns: when it begins.
            end_ns: when it ends.

        Returns:
            The parts; together they are the spans.
        """
        last = self.segments_at(group, end_ns, "left")
        within = (self.segments_at(group, start_ns), last)
        return cut_between(lambda changes: self._changes(changes)[1], within, start_ns, end_ns)

    def extents(self, group: Ints, segment: Ints) -> tuple[Ints, Ints]:
        """Return when segments begin and end; what was before or goes on has always been so.

        Args:
            control: the controls.
            segment: a segment of each.
        """
        begins, ends = np.full((2, len(segment)), _FOREVER_NS)
        begins[:] = -_FOREVER_NS
        for times, changes in ((begins, segment - 1), (ends, segment)):
            at = np.flatnonzero((changes >= 0) & (changes < len(self.cause) - 1))
            own, times_ns = self._changes(changes[at])
            is_own = own == group[at]
            times[at[is_own]] = times_ns[is_own]
        return begins, ends

    def _changes(self, changes: Ints) -> tuple[Ints, Ints]:
        """Return of which control changes are, and when."""
        count = len(self.times_ns)
        is_shared = changes < _SHARED_GROUPS * count
        own, times_ns = np.empty((2, len(changes)), dtype=np.int64)
        own[is_shared] = changes[is_shared] // count
        times_ns[is_shared] = self.times_ns[changes[is_shared] % count]
        keys = self.keys[changes[~is_shared] - _SHARED_GROUPS * count]
        own[~is_shared], moments = np.divmod(keys, len(self.moments_ns) + 1)
        times_ns[~is_shared] = self.moments_ns[moments - 1]
        return own, times_ns


def combine_tracks(pairs: Sequence[tuple[Track, Track]], spans: Spans, group: Ints) -> Tracks:
    """Put tracks, and those of other controls, beside each other.

    Args:
        turns: the tracks of the first two controls, which change at the same times, in parts one
            after the other: the last segment of a part goes on in the next.
        spans: what the threads of all other controls did, the outer ones first.
        control: whose each of these spans is.

    Returns:
        All of them.
    """
    first, second = zip(*pairs, strict=True)
    moments = sorted_distinct(np.concatenate([spans.start_ns, spans.end_ns]))
    shift = group * (len(moments) + 1) + 1
    starts = np.searchsorted(moments, spans.start_ns) + shift
    ends = np.searchsorted(moments, spans.end_ns) + shift
    order = np.argsort(starts, kind="stable")
    rest = track(Spans(starts, ends, spans.row, spans.cause).of(order))
    every = (*first, *second, rest)
    return Tracks(
        np.concatenate([each.times_ns for each in first]),
        moments,
        rest.times_ns,
        np.concatenate([[NO_CAUSE], *(each.cause[1:] for each in every)]),
        np.concatenate([[np.int32(NO_ROW)], *(each.row[1:] for each in every)]),
    )
