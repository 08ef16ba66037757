"""Owns the tracks of all controls side by side, so that many threads cost no more than many events.

A moment of a control is a key: the control, and how many of the trace's moments came before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.idle.cpu_causes import NOTHING, Causes
from profiler_ext.attribution.idle.tracks import Rows, Spans, Track, track
from profiler_ext.attribution.trace.cutting import Cuts, cut_between
from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.records import Ints, sorted_distinct

_EVER = np.iinfo(np.int64).max // 4


@dataclass(frozen=True, slots=True)
class Tracks:
    """What each control did in time: the segment before the first change, and from each one on.

    Attributes:
        moments_ns: when anything changes, in order, none twice.
        keys: the control and the moment of each change, in order.
        cause: the number of a cause for each segment, one more than there are changes.
        row: the innermost event of each, or ``NO_ROW``.
    """

    moments_ns: Ints
    keys: Ints
    cause: Causes
    row: Rows

    def segments_at(self, control: Ints, times_ns: Ints) -> Ints:
        """Return the segments of controls at times.

        Args:
            control: the controls.
            times_ns: a time for each.
        """
        return self._changes(control, np.searchsorted(self.moments_ns, times_ns, side="right"))

    def cut(self, control: Ints, start_ns: Ints, end_ns: Ints) -> Cuts:
        """Cut spans of time where what their controls do changes.

        Args:
            control: the control of each span.
            start_ns: when it begins.
            end_ns: when it ends.

        Returns:
            The parts; together they are the spans.
        """
        before = np.searchsorted(self.moments_ns, end_ns, side="left")
        within = (self.segments_at(control, start_ns), self._changes(control, before))
        return cut_between(self._times_ns, within, start_ns, end_ns)

    def extents(self, control: Ints, segment: Ints) -> tuple[Ints, Ints]:
        """Return when segments begin and end; what was before or goes on has always been so.

        Args:
            control: the controls.
            segment: a segment of each.
        """
        begins, ends = np.full((2, len(segment)), _EVER)
        begins[:] = -_EVER
        for times, changes in ((begins, segment - 1), (ends, segment)):
            at = np.flatnonzero((changes >= 0) & (changes < len(self.keys)))
            at = at[self.keys[changes[at]] // (len(self.moments_ns) + 1) == control[at]]
            times[at] = self._times_ns(changes[at])
        return begins, ends

    def _times_ns(self, changes: Ints) -> Ints:
        return self.moments_ns[self.keys[changes] % (len(self.moments_ns) + 1) - 1]

    def _changes(
        self, control: Ints, moments: Ints | np.ndarray[tuple[int], np.dtype[np.intp]]
    ) -> Ints:
        """Return how many changes came before, those of the controls before included."""
        keys = control * (len(self.moments_ns) + 1) + moments
        return np.searchsorted(self.keys, keys, side="right").astype(np.int64, copy=False)


def side_by_side(tracks: Sequence[Track], spans: Spans, control: Ints) -> Tracks:
    """Put tracks, and those of other controls, beside each other.

    Args:
        tracks: the tracks of the first controls, which change at the same times.
        spans: what the threads of all other controls did, the outer ones first.
        control: whose each of these spans is.

    Returns:
        All of them.
    """
    times_ns = (tracks[0].times_ns, spans.start_ns, spans.end_ns)
    moments = sorted_distinct(np.concatenate(times_ns))
    of_all = len(moments) + 1
    shift = control * of_all + 1
    starts = np.searchsorted(moments, spans.start_ns) + shift
    ends = np.searchsorted(moments, spans.end_ns) + shift
    order = np.argsort(starts, kind="stable")
    rest = track(Spans(starts, ends, spans.row, spans.cause).of(order))
    own = np.searchsorted(moments, tracks[0].times_ns) + 1
    every = (*tracks, rest)
    return Tracks(
        moments,
        np.concatenate([*(own + at * of_all for at in range(len(tracks))), rest.times_ns]),
        np.concatenate([[NOTHING], *(each.cause[1:] for each in every)]),
        np.concatenate([[np.int32(NO_ROW)], *(each.row[1:] for each in every)]),
    )
