"""Owns what the device of a rank did at each time: what it ran, or why it idled, and at which line.

Times are of the wall clock, so that those of several ranks can be laid beside each other; and an
activity is the same on all of them, whatever number its place has there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.ledger import busy_spans
from profiler_ext.attribution.trace.cutting import cut_at
from profiler_ext.records import Analysis, Codes, IdleCause, Ints, Place

Windows = Sequence[tuple[int, int]]
"""From when to when."""

_OUTSIDE, _RUNNING = -2, -1


@dataclass(frozen=True, slots=True)
class Activity:
    """What a device may do.

    Attributes:
        cause: the ``IdleCause`` while it idles; ``""`` while it runs something.
        file, line, module, gap: those of the place.
    """

    cause: str
    file: str | None
    line: int | None
    module: str | None
    gap: str | None


@dataclass(frozen=True, slots=True)
class Doing:
    """What a device did: until the first of the times, and from each one on.

    Attributes:
        times_ns: when that changes, in order.
        activity: index into what :class:`Devices` knows; one more than there are times.
        place: index into :func:`places_of`; as many.
    """

    times_ns: Ints
    activity: Ints
    place: Ints

    def spent(self, windows: Windows) -> tuple[Ints, Ints, Ints]:
        """Return the pieces of some windows.

        Args:
            windows: of the wall clock.

        Returns:
            The activity, place and nanoseconds of each piece.
        """
        start_ns, end_ns = np.array(windows, dtype=np.int64).reshape(-1, 2).T
        cuts = cut_at(self.times_ns, start_ns, end_ns)
        return self.activity[cuts.segment], self.place[cuts.segment], cuts.duration_ns

    def totals(self, windows: Windows) -> Mapping[int, int]:
        """Return how long each activity took in some windows, by its index."""
        activity, _, duration_ns = self.spent(windows)
        found, whose = np.unique(activity, return_inverse=True)
        sums = np.zeros(len(found), dtype=np.int64)
        np.add.at(sums, whose, duration_ns)
        return dict(zip(found.tolist(), sums.tolist(), strict=True))


class Devices:
    """What each device of each rank did."""

    def __init__(self, analyses: Sequence[Analysis]) -> None:
        """Take one analysis for each rank."""
        self._analyses = analyses
        self._activities: list[Activity] = []
        self._indices: dict[Activity, int] = {}
        self._doing: dict[tuple[int, int], Doing] = {}

    def cause(self, activity: int) -> str:
        """Return why a device idles in an activity; ``""`` where it runs something."""
        return self._activities[activity].cause

    def doing(self, rank: int, device: int) -> Doing:
        """Return what a device did.

        Args:
            rank: the index of the rank.
            device: the device's own number there.
        """
        key = rank, device
        if key not in self._doing:
            self._doing[key] = self._of_device(self._analyses[rank], device)
        return self._doing[key]

    def _of_device(self, analysis: Analysis, device: int) -> Doing:
        times_ns, cause, place = _laid_out(analysis, device)
        words = (*analysis.idle.cause.strings, IdleCause.OUTSIDE_STEPS.value, "")
        places = places_of(analysis)
        pairs, whose = np.unique(np.stack([cause, place]), axis=1, return_inverse=True)
        found = [
            self._index(words[cause], places[place])
            for cause, place in zip(*pairs.tolist(), strict=True)
        ]
        activity = np.array(found, dtype=np.int64)[whose.reshape(-1)]
        return Doing(times_ns + analysis.recording.trace.base_ns, activity, place)

    def _index(self, cause: str, place: Place) -> int:
        activity = Activity(cause, place.file, place.line, place.module, place.gap)
        if activity not in self._indices:
            self._indices[activity] = len(self._activities)
            self._activities.append(activity)
        return self._indices[activity]


def places_of(analysis: Analysis) -> tuple[Place, ...]:
    """Return the places of what a rank runs and idles for; the last one says nothing."""
    return (*analysis.places, *analysis.idle.places, Place())


def _laid_out(analysis: Analysis, device: int) -> tuple[Ints, Ints, Ints]:
    """Return when what a device does changes, and the cause and the place from then on."""
    (busy,) = (each for each in busy_spans(analysis.launches) if each.device == device)
    shown = np.flatnonzero(busy.end_ns > busy.start_ns)
    idle = analysis.idle
    own = np.flatnonzero(idle.device == device)
    starts = np.append(busy.start_ns[shown], idle.start_ns[own])
    ends = np.append(busy.end_ns[shown], (idle.start_ns + idle.duration_ns)[own])
    cause = np.append(np.full(len(shown), _RUNNING), idle.cause.codes[own])
    place = np.append(_main_places(analysis)[busy.launch[shown]], _of_idle(analysis, own))
    order = np.argsort(starts, kind="stable")
    spans = starts[order], ends[order], cause[order], place[order]
    return _with_gaps(*spans, len(places_of(analysis)) - 1)


def _with_gaps(
    starts: Ints, ends: Ints, cause: Ints, place: Ints, nowhere: int
) -> tuple[Ints, Ints, Ints]:
    """Lay out spans that do not overlap; between them nothing is known."""
    times = np.stack([starts, ends], axis=1).reshape(-1)
    causes = np.stack([cause, np.full(len(cause), _OUTSIDE)], axis=1).reshape(-1)
    places = np.stack([place, np.full(len(place), nowhere)], axis=1).reshape(-1)
    lasts = np.append(times[1:] > times[:-1], True)[: len(times)]
    return times[lasts], np.append(_OUTSIDE, causes[lasts]), np.append(nowhere, places[lasts])


def _main_places(analysis: Analysis) -> Ints:
    """Return the place of the largest share of each launch."""
    shares = analysis.shares
    order = np.lexsort((-shares.duration_ns, shares.launch))
    firsts = np.searchsorted(shares.launch[order], np.arange(len(analysis.launches)))
    return shares.place[order][firsts].astype(np.int64)


def _of_idle(analysis: Analysis, rows: Ints) -> Ints:
    places: Codes = analysis.idle.cause_place[rows]
    return places.astype(np.int64) + len(analysis.places)


def length_ns(windows: Iterable[tuple[int, int]]) -> int:
    """Return how long some windows are in all."""
    return sum(end - start for start, end in windows)
