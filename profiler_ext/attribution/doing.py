"""Owns what the devices of a rank did at each time: what they ran, or why they idled, and where.

Times are of the wall clock, so that those of several ranks can be laid beside each other; and an
activity is the same on all of them, whatever number its place has there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.attribution.ledger import BusySpans, busy_spans
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
class TimeQuery:
    """What is asked of a rank: what a device did in some windows of its wall clock."""

    device: int
    windows: Windows


@dataclass(frozen=True, slots=True)
class Spent:
    """What a device did in some windows.

    Attributes:
        activities: each with its place there, and how long it took: index into
            :attr:`Doing.activities`, index into :attr:`Doing.places`, and nanoseconds.
    """

    activities: tuple[tuple[int, int, int], ...]

    def totals(self) -> dict[int, int]:
        """Return how long each activity took, by its index."""
        sums: dict[int, int] = {}
        for activity, _, duration_ns in self.activities:
            sums[activity] = sums.get(activity, 0) + duration_ns
        return sums


@dataclass(frozen=True, slots=True)
class _Timeline:
    """What a device did: until the first of the times, and from each one on.

    Attributes:
        times_ns: when that changes, in order.
        activity: index into ``Doing.activities``; one more than there are times.
        place: index into ``Doing.places``; as many.
    """

    times_ns: Ints
    activity: Codes
    place: Codes


@dataclass(frozen=True, slots=True)
class DeviceTimeline:
    """What the devices of a rank that run collectives did.

    Attributes:
        activities: what they did.
        places: where; the last one says nothing.
        timelines: by device, when.
    """

    activities: tuple[Activity, ...]
    places: tuple[Place, ...]
    timelines: Mapping[int, _Timeline]

    def spent(self, query: TimeQuery) -> Spent:
        """Return what a device did in some windows.

        Args:
            asked: the device and the windows.
        """
        timeline = self.timelines[query.device]
        start_ns, end_ns = np.array(query.windows, dtype=np.int64).reshape(-1, 2).T
        cuts = cut_at(timeline.times_ns, start_ns, end_ns)
        both = np.stack([timeline.activity[cuts.segment], timeline.place[cuts.segment]])
        pairs, pair_index = np.unique(both, axis=1, return_inverse=True)
        sums = np.zeros(pairs.shape[1], dtype=np.int64)
        np.add.at(sums, pair_index.reshape(-1), cuts.duration_ns)
        return Spent(tuple(zip(*pairs.tolist(), sums.tolist(), strict=True)))


def device_timeline(analysis: Analysis) -> DeviceTimeline:
    """Return what the devices of a rank that run collectives did.

    Args:
        analysis: what attribution found on that rank.
    """
    communicating = set(analysis.launches.device[analysis.communication.launch].tolist())
    cause_names = (*analysis.idle.cause.strings, IdleCause.OUTSIDE_STEPS.value, "")
    places = places_of(analysis)
    indices: dict[Activity, int] = {}
    timelines = {}
    for busy in busy_spans(analysis.launches):
        if busy.device not in communicating:
            continue
        times_ns, cause, place = _timeline_columns(analysis, busy)
        pairs, pair_index = np.unique(np.stack([cause, place]), axis=1, return_inverse=True)
        activity_indices = [
            indices.setdefault(_activity(cause_names[cause], places[place]), len(indices))
            for cause, place in zip(*pairs.tolist(), strict=True)
        ]
        activity = np.array(activity_indices, dtype=np.int32)[pair_index.reshape(-1)]
        times_ns = times_ns + analysis.recording.trace.base_ns
        timelines[busy.device] = _Timeline(times_ns, activity, place.astype(np.int32))
    return DeviceTimeline(tuple(indices), places, timelines)


def compact(device_activity: DeviceTimeline) -> DeviceTimeline:
    """Return it with the places that it points at alone, and of these what tells where they are.

    Args:
        doing: what the devices of a rank did.
    """
    used = np.unique(np.concatenate([np.empty(0, np.int32), *_places(device_activity)]))
    at = np.zeros(len(device_activity.places), dtype=np.int32)
    at[used] = np.arange(len(used))
    return DeviceTimeline(
        device_activity.activities,
        tuple(replace(device_activity.places[place], stack=()) for place in used.tolist()),
        {
            device: replace(timeline, place=at[timeline.place])
            for device, timeline in device_activity.timelines.items()
        },
    )


def _places(device_activity: DeviceTimeline) -> Iterable[Codes]:
    return (timeline.place for timeline in device_activity.timelines.values())


def _activity(cause: str, place: Place) -> Activity:
    return Activity(cause, place.file, place.line, place.module, place.gap)


def places_of(analysis: Analysis) -> tuple[Place, ...]:
    """Return the places of what a rank runs and idles for; the last one says nothing."""
    return (*analysis.places, *analysis.idle.places, Place())


def _timeline_columns(analysis: Analysis, busy: BusySpans) -> tuple[Ints, Ints, Ints]:
    """Return when what a device does changes, and the cause and the place from then on."""
    nonempty = np.flatnonzero(busy.end_ns > busy.start_ns)
    idle = analysis.idle
    own = np.flatnonzero(idle.device == busy.device)
    starts = np.append(busy.start_ns[nonempty], idle.start_ns[own])
    ends = np.append(busy.end_ns[nonempty], (idle.start_ns + idle.duration_ns)[own])
    cause = np.append(np.full(len(nonempty), _RUNNING), idle.cause.codes[own])
    place = np.append(_main_places(analysis)[busy.launch[nonempty]], _of_idle(analysis, own))
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
