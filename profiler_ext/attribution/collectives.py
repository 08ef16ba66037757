"""A rank's collectives: the exposed part of each, and those that synchronize all ranks.

A collective is identified by its process group, its number there and its name; where its torch gave
no number, by its position among those of the group in the step, if both ranks have the same.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from profiler_ext.attribution.step_breakdown import BusySpans, busy_spans
from profiler_ext.attribution.trace.launches import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, intern, take
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.kineto.communication import collective_name, op_collective
from profiler_ext.kineto.distributed import Collective, collective_of, only_group
from profiler_ext.records.analysis import (
    NO_COMMUNICATION,
    Analysis,
    Communication,
    Launches,
    RankCollectives,
)
from profiler_ext.records.events import Codes, Events, Ints, MaskedInts, Trace, flag_rows
from profiler_ext.records.vocabulary import LaunchKind

_NUMBERED, _UNKNOWN = -1, -1
_Key = tuple[str, str, int, int]  # group, what, number and step


def find_communication(
    trace: Trace,
    launches: Launches,
    busy: Sequence[BusySpans],
    nesting: Nesting,
    enqueued: EnqueuedLaunches,
) -> Communication:
    """Return the launches that communicate, and how much of each was exposed."""
    rows = np.flatnonzero(launches.kind.where(LaunchKind.COMMUNICATION))
    if not len(rows):
        return NO_COMMUNICATION
    exposed = np.zeros(len(launches), dtype=np.int64)
    for own in busy:
        np.add.at(exposed, own.launch, own.end_ns - own.start_ns)
    only = only_group(trace) or ""
    known = [collective_of(trace, launches, row) for row in rows.tolist()]
    named = _names(trace.events, launches, rows, nesting, enqueued)
    return Communication(
        launch=rows,
        collective=intern(
            [each.name if each else name for each, name in zip(known, named, strict=True)]
        ),
        process_group=intern([each.group if each else only for each in known]),
        exposed_ns=exposed[rows],
        waiting_ns=fully_masked(len(rows)),
        late_ns=fully_masked(len(rows)),
    )


def _names(
    events: Events, launches: Launches, rows: Ints, nesting: Nesting, enqueued: EnqueuedLaunches
) -> list[str]:
    """Return the collective of each launch, by the range around its call or its kernel's name."""
    ranges_of_op = nesting.nearest(flag_rows(events.name, lambda name: op_collective(name) != ""))
    ranges = take(ranges_of_op, enqueued.cpu[rows], NO_ROW).tolist()
    return [
        collective_name(launches.name[row], "" if at == NO_ROW else events.name[at])
        for row, at in zip(rows.tolist(), ranges, strict=True)
    ]


def fully_masked(count: int) -> MaskedInts:
    """Return a column of unknown values."""
    return np.ma.MaskedArray(np.zeros(count, dtype=np.int64), mask=np.ones(count, dtype=np.bool_))


@dataclass(frozen=True, slots=True)
class _SyncCollective:
    """A collective on this rank: the size of its group, and its launches."""

    ranks: int
    launches: list[int]


def collectives_of(analysis: Analysis) -> RankCollectives:
    """Return the collectives of a rank that no rank can leave before every rank has come."""
    collectives_by_key = _synchronizing(analysis)
    group, what, number, step = (
        zip(*collectives_by_key, strict=True) if collectives_by_key else ((), (), (), ())
    )
    launches, base_ns = analysis.launches, analysis.recording.trace.base_ns
    rows = np.array(
        [
            row
            for collective_launches in collectives_by_key.values()
            for row in collective_launches.launches
        ],
        dtype=np.int64,
    )
    counts = [
        len(collective_launches.launches) for collective_launches in collectives_by_key.values()
    ]
    exposed_launch, exposed_start_ns, exposed_end_ns = _exposed(analysis, rows)
    return RankCollectives(
        rank=analysis.recording.settings.rank,
        group=intern(group),
        what=intern(what),
        number=np.array(number, dtype=np.int64),
        step=np.array(step, dtype=np.int32),
        ranks=np.array(
            [collective_launches.ranks for collective_launches in collectives_by_key.values()],
            dtype=np.int32,
        ),
        launch=rows,
        launch_collective=np.repeat(np.arange(len(collectives_by_key), dtype=np.int32), counts),
        launch_device=launches.device[rows].astype(np.int32),
        launch_start_ns=launches.start_ns[rows] + base_ns,
        launch_duration_ns=launches.duration_ns[rows],
        exposed_launch=exposed_launch,
        exposed_start_ns=exposed_start_ns + base_ns,
        exposed_end_ns=exposed_end_ns + base_ns,
        begin_ns=analysis.steps[0].start_ns + base_ns if analysis.steps else None,
    )


def shifted(collectives: RankCollectives, shift_ns: int) -> RankCollectives:
    """Return the collectives of a rank whose clock is moved."""
    begin_ns = collectives.begin_ns
    return replace(
        collectives,
        launch_start_ns=collectives.launch_start_ns + shift_ns,
        exposed_start_ns=collectives.exposed_start_ns + shift_ns,
        exposed_end_ns=collectives.exposed_end_ns + shift_ns,
        begin_ns=None if begin_ns is None else begin_ns + shift_ns,
    )


def shared_ids(ranks: Sequence[RankCollectives]) -> list[Ints]:
    """Number each rank's collectives from 0, the same on all ranks."""
    known: dict[_Key, int] = {}
    return [
        np.array([known.setdefault(key, len(known)) for key in _keys(each)], dtype=np.int64)
        for each in ranks
    ]


def starts_ns(collectives: RankCollectives) -> Ints:
    """Return when each collective of a rank began: when its first launch did."""
    starts = np.full(len(collectives), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(starts, collectives.launch_collective, collectives.launch_start_ns)
    return starts


def ends_ns(collectives: RankCollectives) -> Ints:
    """Return when each collective of a rank ended: when its last launch did."""
    ends = np.full(len(collectives), np.iinfo(np.int64).min, dtype=np.int64)
    over_ns = collectives.launch_start_ns + collectives.launch_duration_ns
    np.maximum.at(ends, collectives.launch_collective, over_ns)
    return ends


def first_launches(collectives: RankCollectives) -> Ints:
    """Return for each collective of a rank the index of its launch that began first."""
    of_launch = collectives.launch_collective
    order = np.lexsort((collectives.launch_start_ns, of_launch))
    return order[np.searchsorted(of_launch[order], np.arange(len(collectives)))]


def _keys(collectives: RankCollectives) -> Sequence[_Key]:
    group, what = collectives.group, collectives.what
    return list(
        zip(
            (group.strings[code] for code in group.codes.tolist()),
            (what.strings[code] for code in what.codes.tolist()),
            collectives.number.tolist(),
            collectives.step.tolist(),
            strict=True,
        )
    )


def _synchronizing(analysis: Analysis) -> dict[_Key, _SyncCollective]:
    trace, launches = analysis.recording.trace, analysis.launches
    collectives_by_key: dict[_Key, _SyncCollective] = {}
    unnumbered = defaultdict[tuple[str, int], list[tuple[Collective, int]]](list)
    for launch in np.flatnonzero(launches.kind.where(LaunchKind.COMMUNICATION)).tolist():
        collective = collective_of(trace, launches, launch)
        if collective is None or not collective.is_synchronizing:
            continue
        if collective.sequence is not None:
            key = (_group(collective), collective.name, collective.sequence, _NUMBERED)
            collectives_by_key.setdefault(
                key, _SyncCollective(_ranks(collective), [])
            ).launches.append(launch)
        elif (step := launches.step[launch]) is not np.ma.masked:
            unnumbered[_group(collective), int(step)].append((collective, launch))
    return collectives_by_key | _by_order(unnumbered)


def _by_order(
    unnumbered: dict[tuple[str, int], list[tuple[Collective, int]]],
) -> dict[_Key, _SyncCollective]:
    """Name collectives by their position among those of a group in a step, and by all of these."""
    return {
        (group, digest, place, step): _SyncCollective(_ranks(collective), [launch])
        for (group, step), each in unnumbered.items()
        for digest in (_digest([collective for collective, _ in each]),)
        for place, (collective, launch) in enumerate(each)
    }


def _digest(collectives: Sequence[Collective]) -> str:
    encoded = msgspec.json.encode([(each.name, each.elements) for each in collectives])
    return hashlib.blake2b(encoded, digest_size=16).hexdigest()


def _group(collective: Collective) -> str:
    """Return the name of a group and its ranks, if known, to distinguish it from others."""
    return f"{collective.group} {collective.members}".rstrip()


def _ranks(collective: Collective) -> int:
    return _UNKNOWN if collective.ranks is None else collective.ranks


def _exposed(analysis: Analysis, rows: Ints) -> tuple[Codes, Ints, Ints]:
    """Return when a device ran each launch and nothing else: its index, begin and end."""
    spans = busy_spans(analysis.launches)
    launch, start, end = (
        np.concatenate([np.empty(0, dtype=np.int64), *(getattr(own, name) for own in spans)])
        for name in ("launch", "start_ns", "end_ns")
    )
    at = np.full(len(analysis.launches), -1, dtype=np.int32)
    at[rows] = np.arange(len(rows))
    chosen = np.flatnonzero((at[launch] >= 0) & (end > start))
    order = chosen[np.argsort(at[launch[chosen]], kind="stable")]
    return at[launch[order]], start[order], end[order]
