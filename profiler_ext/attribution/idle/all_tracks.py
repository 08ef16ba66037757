"""Owns the tracks of all controls side by side, so that many threads cost no more than many events.

The first two controls take turns and change at the same times. A change of any other is a key: the
control, and how many moments of the others came before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from profiler_ext.attribution.idle.cpu_causes import NOTHING, Causes
from profiler_ext.attribution.idle.tracks import Spans, Track, track
from profiler_ext.attribution.trace.cutting import Cuts, cut_between
from profiler_ext.attribution.trace.lookups import NO_ROW, Rows
from profiler_ext.records import Ints, sorted_distinct

_EVER = np.iinfo(np.int64).max // 4
_IN_TURN = 2


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
        self, control: Ints, times_ns: Ints, side: Literal["left", "right"] = "right"
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
        found: Ints = control * count + np.searchsorted(self.times_ns, times_ns, side=side)
        others = np.flatnonzero(control >= _IN_TURN)
        moments = np.searchsorted(self.moments_ns, times_ns[others], side=side)
        keys = control[others] * (len(self.moments_ns) + 1) + moments
        found[others] = _IN_TURN * count + np.searchsorted(self.keys, keys, side="right")
        return found

    def cut(self, control: Ints, start_ns: Ints, end_ns: Ints) -> Cuts:
        """Cut spans of time where what their controls do changes.

        Args:
            control: the control of each span.
            start_ns: when it begins.
            end_ns: when it ends.

        Returns:
            The parts; together they are the spans.
        """
        last = self.segments_at(control, end_ns, "left")
        within = (self.segments_at(control, start_ns), last)
        return cut_between(lambda changes: self._changes(changes)[1], within, start_ns, end_ns)

    def extents(self, control: Ints, segment: Ints) -> tuple[Ints, Ints]:
        """Return when segments begin and end; what was before or goes on has always been so.

        Args:
            control: the controls.
            segment: a segment of each.
        """
        begins, ends = np.full((2, len(segment)), _EVER)
        begins[:] = -_EVER
        for times, changes in ((begins, segment - 1), (ends, segment)):
            at = np.flatnonzero((changes >= 0) & (changes < len(self.cause) - 1))
            own, times_ns = self._changes(changes[at])
            is_own = own == control[at]
            times[at[is_own]] = times_ns[is_own]
        return begins, ends

    def _changes(self, changes: Ints) -> tuple[Ints, Ints]:
        """Return of which control changes are, and when."""
        count = len(self.times_ns)
        in_turn = changes < _IN_TURN * count
        own, times_ns = np.empty((2, len(changes)), dtype=np.int64)
        own[in_turn] = changes[in_turn] // count
        times_ns[in_turn] = self.times_ns[changes[in_turn] % count]
        keys = self.keys[changes[~in_turn] - _IN_TURN * count]
        own[~in_turn], moments = np.divmod(keys, len(self.moments_ns) + 1)
        times_ns[~in_turn] = self.moments_ns[moments - 1]
        return own, times_ns


def side_by_side(turns: Sequence[tuple[Track, Track]], spans: Spans, control: Ints) -> Tracks:
    """Put tracks, and those of other controls, beside each other.

    Args:
        turns: the tracks of the first two controls, which change at the same times, in parts one
            after the other: the last segment of a part goes on in the next.
        spans: what the threads of all other controls did, the outer ones first.
        control: whose each of these spans is.

    Returns:
        All of them.
    """
    first, second = zip(*turns, strict=True)
    moments = sorted_distinct(np.concatenate([spans.start_ns, spans.end_ns]))
    shift = control * (len(moments) + 1) + 1
    starts = np.searchsorted(moments, spans.start_ns) + shift
    ends = np.searchsorted(moments, spans.end_ns) + shift
    order = np.argsort(starts, kind="stable")
    rest = track(Spans(starts, ends, spans.row, spans.cause).of(order))
    every = (*first, *second, rest)
    return Tracks(
        np.concatenate([each.times_ns for each in first]),
        moments,
        rest.times_ns,
        np.concatenate([[NOTHING], *(each.cause[1:] for each in every)]),
        np.concatenate([[np.int32(NO_ROW)], *(each.row[1:] for each in every)]),
    )
