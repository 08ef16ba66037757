"""Owns what made a rank late: what it spent more time in than the rank that waited for it.

What a rank does at the moment when another waits for it is not why it is late: it may have slept
before its forward pass, and be computing its backward pass when the other, which did not sleep, is
done with that. So both are laid beside each other from the last moment on at which they were level,
the end of a collective that kept either from going on. What the late one spent more time in since
then than the other adds up to at least how late it is, and is scaled to that. It is an estimate:
where both do the same more slowly by turns, that too is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.doing import Devices, Doing, Windows, length_ns, places_of
from profiler_ext.attribution.trace.lookups import intern
from profiler_ext.records import Analysis, Lateness

_Rows = list[tuple[int, str, int, int]]
"""Launch, cause, place and nanoseconds."""
_Weights = Mapping[tuple[str, int], int]
"""By cause and place, how much more time went there."""


@dataclass(frozen=True, slots=True)
class Side:
    """One rank in a collective: its index, and the launch there."""

    rank: int
    launch: int


@dataclass(frozen=True, slots=True)
class Wait:
    """That a rank had nothing to run but to wait for another; times of the wall clock.

    Attributes:
        late: the rank that came last.
        waiter: the rank that waited for it.
        windows: when that had nothing else to run; none is empty.
        level_ns: when both were last level; ``None`` where that is not known.
    """

    late: Side
    waiter: Side
    windows: Windows
    level_ns: int | None


def with_reasons(analyses: Sequence[Analysis], waits: Sequence[Wait]) -> tuple[Lateness, ...]:
    """Return for each rank what made it late.

    Args:
        analyses: one for each rank.
        waits: in order of time.

    Returns:
        As many; the rows of a launch add up to how long was waited for it.
    """
    devices = Devices(analyses)
    rows: dict[int, _Rows] = defaultdict(list)
    for together in _together(waits):
        weights = _weights(devices, analyses, together)
        for wait in together:
            shares = _apportioned(length_ns(wait.windows), list(weights.values()))
            rows[wait.late.rank] += [
                (wait.late.launch, cause, place, share)
                for (cause, place), share in zip(weights, shares, strict=True)
                if share
            ]
    return tuple(_lateness(analysis, rows[rank]) for rank, analysis in enumerate(analyses))


def _together(waits: Sequence[Wait]) -> list[list[Wait]]:
    """Group the waits for one rank by another since they were level."""
    found: dict[object, list[Wait]] = defaultdict(list)
    for at, wait in enumerate(waits):
        alone = at if wait.level_ns is None else None
        found[wait.late.rank, wait.waiter.rank, wait.level_ns, alone].append(wait)
    return list(found.values())


def _weights(devices: Devices, analyses: Sequence[Analysis], together: Sequence[Wait]) -> _Weights:
    first = together[0]
    late, waiter = (
        devices.doing(side.rank, int(analyses[side.rank].launches.device[side.launch]))
        for side in (first.late, first.waiter)
    )
    windows = [window for wait in together for window in wait.windows]
    if first.level_ns is not None:
        since = [(first.level_ns, max(end for _, end in windows))]
        more = _more(late.totals(since), waiter.totals(since), waiter.totals(windows))
        if more:
            return _placed(devices, late, since, more)
    return _placed(devices, late, windows, late.totals(windows))


def _more(
    late: Mapping[int, int], waiter: Mapping[int, int], waited: Mapping[int, int]
) -> dict[int, int]:
    """Return in which activities the late rank spent more, the wait itself left out."""
    differences = {
        each: spent - waiter.get(each, 0) + waited.get(each, 0) for each, spent in late.items()
    }
    return {each: difference for each, difference in differences.items() if difference > 0}


def _placed(devices: Devices, doing: Doing, windows: Windows, more: Mapping[int, int]) -> _Weights:
    """Put each activity where the rank spent most of it."""
    activity, place, duration_ns = doing.spent(windows)
    longest: dict[int, tuple[int, int]] = {}
    pairs, whose = np.unique(np.stack([activity, place]), axis=1, return_inverse=True)
    sums = np.zeros(pairs.shape[1], dtype=np.int64)
    np.add.at(sums, whose.reshape(-1), duration_ns)
    for own, at, spent_ns in zip(*pairs.tolist(), sums.tolist(), strict=True):
        longest[own] = max(longest.get(own, (-1, -1)), (spent_ns, at))
    return {(devices.cause(own), longest[own][1]): amount for own, amount in more.items()}


def _apportioned(total: int, weights: Sequence[int]) -> list[int]:
    """Divide a total in proportion; the parts add up to it."""
    whole = sum(weights)
    parts = [total * weight // whole for weight in weights]
    rests = sorted(range(len(parts)), key=lambda at: -(total * weights[at] % whole))
    for at in rests[: total - sum(parts)]:
        parts[at] += 1
    return parts


def _lateness(analysis: Analysis, rows: _Rows) -> Lateness:
    launch, cause, place, duration_ns = zip(*sorted(rows), strict=True) if rows else ((),) * 4
    return Lateness(
        launch=np.array(launch, dtype=np.int64),
        cause=intern(cause),
        place=np.array(place, dtype=np.int32),
        duration_ns=np.array(duration_ns, dtype=np.int64),
        places=places_of(analysis),
    )
