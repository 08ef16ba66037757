"""Owns what rules ask of collectives: how quick one can be, and what runs beside one.

A rank alone does not tell a transfer from the wait for another rank. Of collectives that are alike
the quickest waited least, so that the transfer takes no longer than it; of few it may have waited
for long.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from profiler_ext.findings.facts import Facts, Rows
from profiler_ext.findings.finding import Figure, FigureUnit, Location
from profiler_ext.findings.pace import NO_ROW, is_within
from profiler_ext.kineto import names
from profiler_ext.kineto.events import event_arguments
from profiler_ext.records import Ints, MaskedInts

_MIN_FRACTION = 8
_ABSENT = str(None)
_MESSAGES = ("send", "recv")
_SIZE_ARGUMENTS = ("In msg nelems", "Out msg nelems", "dtype", "Process Group Name")


_Key = TypeVar("_Key")


def overlaps_collective(facts: Facts) -> Rows:
    """Tell of each launch whether a collective ran on its device meanwhile, which slows it.

    A product on an H200 takes 53 us alone, and 100 us beside an all-reduce that waits.

    Args:
        facts: what is known of the session.
    """
    launches, own = facts.launches, facts.analysis.communication.launch
    ends = launches.start_ns + launches.duration_ns
    overlaps = np.zeros(len(launches), np.bool_)
    for device in np.unique(launches.device[own]).tolist():
        rows = own[launches.device[own] == device]
        rows = rows[np.argsort(launches.start_ns[rows], kind="stable")]
        reach = np.append(np.int64(-1), np.maximum.accumulate(ends[rows]))
        started = np.searchsorted(launches.start_ns[rows], ends, side="left")
        overlaps |= (launches.device == device) & (reach[started] > launches.start_ns)
    overlaps[own] = False
    return overlaps


def fastest_alike_ns(facts: Facts, launches: Ints) -> MaskedInts:
    """Return for each launch the time of the quickest one that is alike, which may be itself.

    Args:
        facts: what is known of the session.
        launches: rows of launches that communicate.

    Returns:
        One number for each; masked where fewer than eight are alike, or nothing tells how much
        they move: of messages, which the trace never tells it of, each kernel is taken as alike.
    """
    rows = np.searchsorted(facts.analysis.communication.launch, launches)
    has_size = _has_size(facts, launches) | are_point_to_point(facts, rows)
    kind = equal_call_ids(facts, launches)
    quickest = np.full(int(kind.max(initial=-1)) + 1, np.iinfo(np.int64).max, np.int64)
    np.minimum.at(quickest, kind, facts.launches.duration_ns[launches])
    return np.ma.array(quickest[kind], mask=(np.bincount(kind)[kind] < _MIN_FRACTION) | ~has_size)


def are_point_to_point(facts: Facts, rows: Ints) -> Rows:
    """Tell which collectives go from one rank to another; they have no number that ranks share.

    Args:
        facts: what is known of the session.
        rows: rows of its ``Communication``.
    """
    names = facts.analysis.communication.collective
    messages = (name for name in names.strings if name.lower().startswith(_MESSAGES))
    return names.where(*messages)[rows]


def equal_call_ids(facts: Facts, launches: Ints) -> Ints:
    """Number launches that communicate so that those are alike which do the same with as much.

    Args:
        facts: what is known of the session.
        launches: their rows.

    Returns:
        A number for each.
    """
    own = facts.launches.name.codes[launches].tolist()
    given = _arguments(facts, launches)
    return _ids([(name, *each) for name, each in zip(own, given, strict=True)])


def equal_size_ids(facts: Facts, launches: Ints) -> Ints:
    """Number launches that communicate so that those are alike which move as much in one group.

    The backward of an all-gather is a reduce-scatter that moves as much.

    Args:
        facts: what is known of the session.
        launches: their rows.

    Returns:
        A number for each.
    """
    given = _arguments(facts, launches)
    return _ids([(group, *sorted(sizes)) for *sizes, _, group in given])


def is_sharding(facts: Facts, launches: Ints) -> Rows:
    """Tell of launches whether FSDP made them, which knows what it needs next.

    Args:
        facts: what is known of the session.
        launches: their rows.
    """
    events, call = facts.analysis.recording.trace.events, facts.pace.call[launches]
    codes = [at for at, text in enumerate(events.name.strings) if names.is_sharding(text)]
    ranges = np.flatnonzero(np.isin(events.name.codes, codes))
    known: Rows = call != NO_ROW
    begun_ns = np.where(known, events.start_ns[np.where(known, call, 0)], -1)
    return known & is_within(begun_ns, events.start_ns[ranges], events.end_of(ranges))


def exposed_transfers_ns(facts: Facts, rows: Ints) -> tuple[Ints, bool]:
    """Return what is exposed of each without the wait for another rank, and whether that is told.

    Where the ranks are not merged, the quickest of those alike bounds it, if there are enough.

    Args:
        facts: what is known of the session.
        rows: rows of its ``Communication``.
    """
    communication = facts.analysis.communication
    exposed_ns, waiting = communication.exposed_ns[rows], communication.waiting_ns[rows]
    is_alone = np.ma.getmaskarray(waiting)
    quickest = fastest_alike_ns(facts, communication.launch[rows])
    bounded_ns = np.minimum(exposed_ns, quickest.filled(np.iinfo(np.int64).max))
    has_size = not bool((is_alone & np.ma.getmaskarray(quickest)).any())
    merged_ns = np.maximum(exposed_ns - waiting.filled(0), 0)
    return np.where(is_alone, bounded_ns, merged_ns), has_size


def waited(facts: Facts, rows: Ints) -> Figure:
    """Return as a figure how long collectives waited for the last rank in the usual step.

    Args:
        facts: what is known of the session.
        rows: rows of its ``Communication``.
    """
    communication = facts.analysis.communication
    waiting = communication.waiting_ns[rows]
    name = "of it waiting for the last rank"
    if np.ma.getmaskarray(waiting).all():
        return Figure(name, "one rank alone does not tell", FigureUnit.TEXT)
    waited_ns = facts.median_per_step(communication.launch[rows], waiting.filled(0))
    return Figure(name, waited_ns, FigureUnit.NS)


def dominant_location(facts: Facts, rows: Ints) -> Location:
    """Return the line and the module that have more than half of what is exposed, and the kernel.

    So several ranks, whose longest collectives differ by chance, name the same place.

    Args:
        facts: what is known of the session.
        rows: rows of its ``Communication``.
    """
    communication, places = facts.analysis.communication, facts.analysis.places
    launches, exposed_ns = communication.launch[rows], communication.exposed_ns[rows]
    own = [places[at] for at in facts.main_place[launches].tolist()]
    line = _most([(each.file, each.line, each.code) for each in own], exposed_ns)
    module = _most([each.module for each in own], exposed_ns)
    kernel = facts.launches.name[int(launches[int(exposed_ns.argmax())])]
    file, number, code = line or (None, None, None)
    return Location(file, number, code, module, kernel)


def _most(keys: list[_Key], amount: Ints) -> _Key | None:
    """Return the key that has more than half of an amount."""
    sums: dict[_Key, int] = {}
    for key, own in zip(keys, amount.tolist(), strict=True):
        sums[key] = sums.get(key, 0) + own
    first = max(sums, key=lambda key: sums[key])
    return first if 2 * sums[first] > int(amount.sum()) else None


def _arguments(facts: Facts, launches: Ints) -> list[tuple[str, ...]]:
    """Return the sizes, the dtype and the group of each launch, as the recording has them."""
    trace = facts.analysis.recording.trace
    positions = trace.events.position[facts.launches.event[launches]].tolist()
    given = (event_arguments(trace.raw[position]) for position in positions)
    return [tuple(str(each.get(name)) for name in _SIZE_ARGUMENTS) for each in given]


def _has_size(facts: Facts, launches: Ints) -> Rows:
    """Tell of which launches the trace says how many elements they move."""
    given = _arguments(facts, launches)
    return np.array([{*sizes} != {_ABSENT} for *sizes, _, _ in given], np.bool_)


def _ids(keys: list[tuple[Any, ...]]) -> Ints:
    numbers: dict[tuple[Any, ...], int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
