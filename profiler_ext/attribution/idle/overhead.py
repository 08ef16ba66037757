"""Owns the idle time in which the profiler itself held up the CPU."""

from __future__ import annotations

import numpy as np

from profiler_ext.attribution.idle.all_tracks import Tracks
from profiler_ext.attribution.idle.cpu_causes import Causes, code
from profiler_ext.attribution.trace.cutting import Cuts, cut_at
from profiler_ext.attribution.trace.lookups import NO_ROW, flag_rows
from profiler_ext.attribution.trace.timelines import timeline
from profiler_ext.kineto import classify
from profiler_ext.records import Events, IdleCause, Ints


class Overhead:
    """Tells when the profiler worked while a thread went on with nothing else.

    The trace does not say which thread it held up: that of which one segment covers most of it.
    """

    def __init__(self, events: Events) -> None:
        """Lay out what the profiler did.

        Args:
            events: the trace's events.
        """
        rows = np.flatnonzero(flag_rows(events.category, classify.is_profilers))
        rows = rows[np.lexsort((-events.duration_ns[rows], events.start_ns[rows]))]
        self._start_ns, self._end_ns = events.start_ns[rows], events.end_of(rows)
        laid_out = timeline(self._start_ns, self._end_ns)
        lasts = np.append(np.diff(laid_out.times_ns) > 0, True)[: len(laid_out.times_ns)]
        self._times_ns = laid_out.times_ns[lasts]
        self._owner = np.append(np.array([NO_ROW], dtype=np.int64), laid_out.opened[lasts])

    def name(self, tracks: Tracks, group: Ints, cuts: Cuts) -> tuple[Cuts, Causes]:
        """Cut parts of spans where the profiler began or ended, and name their causes.

        Args:
            tracks: what each control did.
            control: the control of each part.
            cuts: the parts, each in one segment of it.

        Returns:
            The parts, and the number of each one's cause.
        """
        finer = cut_at(self._times_ns, cuts.start_ns, cuts.start_ns + cuts.duration_ns)
        segment, owner = cuts.segment[finer.span], self._owner[finer.segment]
        cause = tracks.cause[segment]
        at = np.flatnonzero((owner != NO_ROW) & (cause != code(IdleCause.SYNCHRONISATION)))
        begins, ends = tracks.extents(group[finer.span[at]], segment[at])
        starts, stops = self._start_ns[owner[at]], self._end_ns[owner[at]]
        common = np.minimum(ends, stops) - np.maximum(begins, starts)
        cause[at[2 * common > stops - starts]] = code(IdleCause.PROFILER)
        span = cuts.span[finer.span]
        return Cuts(span, segment, finer.start_ns, finer.duration_ns), cause
