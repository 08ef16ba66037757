"""What made a rank late: what it spent more time in than the rank that waited.

The reason is not what a rank does while another waits: it may have slept before its forward pass,
and compute its backward pass by then. So both are compared since they were last level, the end of a
collective that blocked either. What the late one spent more time in since then adds up to at least
its delay, and is scaled to that. It is an estimate: where both alternate in being slower,
that counts too.

Times are of the wall clock, and activities are equal on all ranks whatever their indices. Ranks are
queried, as they may be read in other processes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.attribution.step_breakdown import BusySpans, busy_spans
from profiler_ext.attribution.trace import intervals, lookups
from profiler_ext.records.analysis import Analysis, Place, RankDelay
from profiler_ext.records.events import Codes, Ints
from profiler_ext.records.vocabulary import IdleCause

Windows = Sequence[tuple[int, int]]  # from when to when

_OUTSIDE, _RUNNING = -2, -1
_Rows = list[tuple[int, str, int, int]]  # launch, cause, place and nanoseconds
_Weights = Mapping[tuple[str, int], int]  # by cause and place, how much more time went there


@dataclass(frozen=True, slots=True)
class Activity:
    """What a device may do."""

    cause: str  # the ``IdleCause`` while it idles; ``""`` while it runs something
    # Those of the place
    file: str | None
    line: int | None
    module: str | None
    gap: str | None


@dataclass(frozen=True, slots=True)
class TimeQuery:
    """A query to a rank: a device's activity in some windows of its wall clock."""

    device: int
    windows: Windows


@dataclass(frozen=True, slots=True)
class Spent:
    """A device's activity in some windows."""

    # Index into :attr:`DeviceTimeline.activities`, index into :attr:`DeviceTimeline.places`, and
    # nanoseconds, of each
    activities: tuple[tuple[int, int, int], ...]

    def totals(self) -> dict[int, int]:
        """Return how long each activity took, by its index."""
        sums: dict[int, int] = {}
        for activity, _, duration_ns in self.activities:
            sums[activity] = sums.get(activity, 0) + duration_ns
        return sums


@dataclass(frozen=True, slots=True)
class _Timeline:
    """A device's activity: until the first of the times, and from each one on."""

    times_ns: Ints  # the changes, in order
    activity: Codes  # index into ``DeviceTimeline.activities``; one more than there are times
    place: Codes  # index into ``DeviceTimeline.places``; as many


@dataclass(frozen=True, slots=True)
class DeviceTimeline:
    """The activity of a rank's devices that run collectives."""

    activities: tuple[Activity, ...]  # the distinct activities
    places: tuple[Place, ...]  # their places; the last one is unknown
    timelines: Mapping[int, _Timeline]  # by device

    def spent(self, query: TimeQuery) -> Spent:
        """Return what a device did in some windows."""
        timeline = self.timelines[query.device]
        start_ns, end_ns = np.array(query.windows, dtype=np.int64).reshape(-1, 2).T
        cuts = intervals.cut_at(timeline.times_ns, start_ns, end_ns)
        both = np.stack([timeline.activity[cuts.segment], timeline.place[cuts.segment]])
        pairs, pair_index = np.unique(both, axis=1, return_inverse=True)
        sums = np.zeros(pairs.shape[1], dtype=np.int64)
        np.add.at(sums, pair_index.reshape(-1), cuts.duration_ns)
        return Spent(tuple(zip(*pairs.tolist(), sums.tolist(), strict=True)))


def device_timeline(analysis: Analysis) -> DeviceTimeline:
    """Return what the devices of a rank that run collectives did."""
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
    """Return it with only the places that it uses, without their other fields."""
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
    """Return the places of what a rank runs and idles for; the last one is unknown."""
    return (*analysis.places, *analysis.idle.places, Place())


def _timeline_columns(analysis: Analysis, busy: BusySpans) -> tuple[Ints, Ints, Ints]:
    """Return the changes of a device's activity, and the cause and the place from then on."""
    nonempty = np.flatnonzero(busy.end_ns > busy.start_ns)
    idle = analysis.idle
    own = np.flatnonzero(idle.device == busy.device)
    starts = np.append(busy.start_ns[nonempty], idle.start_ns[own])
    ends = np.append(busy.end_ns[nonempty], (idle.start_ns + idle.duration_ns)[own])
    cause = np.append(np.full(len(nonempty), _RUNNING), idle.cause.codes[own])
    places: Codes = analysis.idle.cause_place[own]
    place = np.append(
        _main_places(analysis)[busy.launch[nonempty]],
        places.astype(np.int64) + len(analysis.places),
    )
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
    shares = analysis.shares
    order = np.lexsort((-shares.duration_ns, shares.launch))
    firsts = np.searchsorted(shares.launch[order], np.arange(len(analysis.launches)))
    return shares.place[order][firsts].astype(np.int64)


def length_ns(windows: Iterable[tuple[int, int]]) -> int:
    """Return how long some windows are in all."""
    return sum(end - start for start, end in windows)


@dataclass(frozen=True, slots=True)
class Side:
    """One rank in a collective: its index, and the launch and the device there."""

    rank: int
    launch: int
    device: int


@dataclass(frozen=True, slots=True)
class Wait:
    """A rank's wait without other work for another; times of the wall clock."""

    late: Side  # the rank that came last
    waiter: Side  # the rank that waited for it
    windows: Windows  # when the waiter had nothing else to run; none is empty
    last_sync_ns: int | None  # when both were last level, if known


@dataclass(frozen=True, slots=True)
class TimeReply:
    """A rank's reply to its queries."""

    activities: Sequence[Activity]  # the activities of its devices
    places: Sequence[Place]  # their places, at least those that a reply uses
    spent: Sequence[Spent]  # the reply to each query


Queries = Mapping[int, Sequence[TimeQuery]]  # the queries to each rank, by its index
QueryRanks = Callable[[Queries], Mapping[int, TimeReply]]  # queries ranks; each replies


def time_reply(device_activity: DeviceTimeline, queries: Sequence[TimeQuery]) -> TimeReply:
    """Return what a rank answers."""
    return TimeReply(
        device_activity.activities,
        device_activity.places,
        [device_activity.spent(each) for each in queries],
    )


def rank_delays(
    ranks: int, waits: Sequence[Wait], query_ranks: QueryRanks
) -> tuple[RankDelay, ...]:
    """Return for each rank what made it late; the rows of a launch add up to the wait for it."""
    groups = _grouped(waits)
    queries_by_rank: dict[int, list[TimeQuery]] = defaultdict(list)
    queries = [_add_queries(group, queries_by_rank) for group in groups]
    replies = query_ranks(queries_by_rank)
    rows: dict[int, _Rows] = defaultdict(list)
    for group, (late, waiter) in zip(groups, queries, strict=True):
        weights = _weights(group[0], (replies, late), (replies, waiter))
        for wait in group:
            shares = _apportioned(length_ns(wait.windows), list(weights.values()))
            rows[wait.late.rank] += [
                (wait.late.launch, cause, place, share)
                for (cause, place), share in zip(weights, shares, strict=True)
                if share
            ]
    return tuple(_rank_delay(rows[rank], replies.get(rank)) for rank in range(ranks))


def _grouped(waits: Sequence[Wait]) -> list[list[Wait]]:
    """Group the waits for one rank by another since they were level."""
    grouped: dict[object, list[Wait]] = defaultdict(list)
    for at, wait in enumerate(waits):
        alone = at if wait.last_sync_ns is None else None
        grouped[wait.late.rank, wait.waiter.rank, wait.last_sync_ns, alone].append(wait)
    return list(grouped.values())


def _add_queries(
    group: Sequence[Wait], queries_by_rank: dict[int, list[TimeQuery]]
) -> tuple[int, int]:
    """Query both ranks for the windows, and since they were level.

    Returns where the reply of the late one begins, and that of the one that waited.
    """
    first = group[0]
    windows = [window for wait in group for window in wait.windows]
    begun = []
    for side in (first.late, first.waiter):
        own = queries_by_rank[side.rank]
        begun.append(len(own))
        own.append(TimeQuery(side.device, windows))
        if first.last_sync_ns is not None:
            since = [(first.last_sync_ns, max(end for _, end in windows))]
            own.append(TimeQuery(side.device, since))
    late, waiter = begun
    return late, waiter


_Reply = tuple[Mapping[int, TimeReply], int]


def _weights(first: Wait, late: _Reply, waiter: _Reply) -> _Weights:
    of_late, of_waiter = late[0][first.late.rank], waiter[0][first.waiter.rank]
    in_windows = of_late.spent[late[1]]
    if first.last_sync_ns is not None:
        since = of_late.spent[late[1] + 1]
        others = _by_activity(of_waiter, of_waiter.spent[waiter[1] + 1])
        waited = _by_activity(of_waiter, of_waiter.spent[waiter[1]])
        extra_ns = {
            activity: spent - others.get(name, 0) + waited.get(name, 0)
            for activity, spent in since.totals().items()
            for name in (of_late.activities[activity],)
        }
        # The wait itself is left out: it is what the other one spent more time in.
        extra_ns = {
            activity: difference for activity, difference in extra_ns.items() if difference > 0
        }
        if extra_ns:
            return _placed(of_late, since, extra_ns)
    return _placed(of_late, in_windows, in_windows.totals())


def _by_activity(replies: TimeReply, spent: Spent) -> dict[Activity, int]:
    return {replies.activities[at]: duration_ns for at, duration_ns in spent.totals().items()}


def _placed(replies: TimeReply, spent: Spent, extra_ns: Mapping[int, int]) -> _Weights:
    """Return each activity's place: where the rank spent most of it."""
    longest: dict[int, tuple[int, int]] = {}
    for activity, place, spent_ns in spent.activities:
        longest[activity] = max(longest.get(activity, (-1, -1)), (spent_ns, place))
    return {
        (replies.activities[activity].cause, longest[activity][1]): amount
        for activity, amount in extra_ns.items()
    }


def _apportioned(total: int, weights: Sequence[int]) -> list[int]:
    """Divide a total in proportion; the parts add up to it."""
    weight_sum = sum(weights)
    parts = [total * weight // weight_sum for weight in weights]
    rests = sorted(range(len(parts)), key=lambda at: -(total * weights[at] % weight_sum))
    for at in rests[: total - sum(parts)]:
        parts[at] += 1
    return parts


def _rank_delay(rows: _Rows, replies: TimeReply | None) -> RankDelay:
    launch, cause, place, duration_ns = zip(*sorted(rows), strict=True) if rows else ((),) * 4
    return RankDelay(
        launch=np.array(launch, dtype=np.int64),
        cause=lookups.intern(cause),
        place=np.array(place, dtype=np.int32),
        duration_ns=np.array(duration_ns, dtype=np.int64),
        places=() if replies is None else tuple(replies.places),
    )
