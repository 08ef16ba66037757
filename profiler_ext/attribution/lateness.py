"""Owns what made a rank late: what it spent more time in than the rank that waited for it.

What a rank does at the moment when another waits for it is not why it is late: it may have slept
before its forward pass, and be computing its backward pass when the other, which did not sleep, is
done with that. So both are laid beside each other from the last moment on at which they were level,
the end of a collective that kept either from going on. What the late one spent more time in since
then than the other adds up to at least how late it is, and is scaled to that. It is an estimate:
where both do the same more slowly by turns, that too is counted.

What a rank did is asked of it, and only what it answers is needed: ranks may be read elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.doing import Activity, TimeQuery, DeviceTimeline, Spent, Windows, length_ns
from profiler_ext.attribution.trace.lookups import intern
from profiler_ext.records import RankDelay, Place

_Rows = list[tuple[int, str, int, int]]
"""Launch, cause, place and nanoseconds."""
_Weights = Mapping[tuple[str, int], int]
"""By cause and place, how much more time went there."""


@dataclass(frozen=True, slots=True)
class Side:
    """One rank in a collective: its index, and the launch and the device there."""

    rank: int
    launch: int
    device: int


@dataclass(frozen=True, slots=True)
class Wait:
    """That a rank had nothing to run but to wait for another; times of the wall clock.

    Attributes:
        late: the rank that came last.
        waiter: the rank that waited for it.
        windows: when that had nothing else to run; none is empty.
        last_sync_ns: when both were last level; ``None`` where that is not known.
    """

    late: Side
    waiter: Side
    windows: Windows
    last_sync_ns: int | None


@dataclass(frozen=True, slots=True)
class TimeReply:
    """What a rank answers to what it is asked.

    Attributes:
        activities: what its devices did.
        places: where; those that an answer points at at least.
        spent: an answer to each question.
    """

    activities: Sequence[Activity]
    places: Sequence[Place]
    spent: Sequence[Spent]


Queries = Mapping[int, Sequence[TimeQuery]]
"""By the index of a rank what is asked of it."""
QueryRanks = Callable[[Queries], Mapping[int, TimeReply]]
"""Asks ranks; each that is asked answers."""


def time_reply(device_activity: DeviceTimeline, queries: Sequence[TimeQuery]) -> TimeReply:
    """Return what a rank answers.

    Args:
        doing: what its devices did.
        asked: what is asked of it.
    """
    return TimeReply(device_activity.activities, device_activity.places, [device_activity.spent(each) for each in queries])


def rank_delays(ranks: int, waits: Sequence[Wait], query_ranks: QueryRanks) -> tuple[RankDelay, ...]:
    """Return for each rank what made it late.

    Args:
        ranks: how many there are.
        waits: in order of time.
        ask: asks ranks what their devices did.

    Returns:
        As many; the rows of a launch add up to how long was waited for it.
    """
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


def _add_queries(group: Sequence[Wait], queries_by_rank: dict[int, list[TimeQuery]]) -> tuple[int, int]:
    """Ask both ranks what they did in the windows, and since they were level.

    Returns:
        Where the answer of the late one begins, and that of the one that waited.
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
        extra_ns = {activity: difference for activity, difference in extra_ns.items() if difference > 0}
        if extra_ns:
            return _placed(of_late, since, extra_ns)
    return _placed(of_late, in_windows, in_windows.totals())


def _by_activity(replies: TimeReply, spent: Spent) -> dict[Activity, int]:
    return {replies.activities[at]: duration_ns for at, duration_ns in spent.totals().items()}


def _placed(replies: TimeReply, spent: Spent, extra_ns: Mapping[int, int]) -> _Weights:
    """Put each activity where the rank spent most of it."""
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
        cause=intern(cause),
        place=np.array(place, dtype=np.int32),
        duration_ns=np.array(duration_ns, dtype=np.int64),
        places=() if replies is None else tuple(replies.places),
    )
