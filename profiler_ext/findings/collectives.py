"""Facts on collectives for rules: the fastest possible, their overlap, their pass of the step.

A step that accumulates gradients has several passes. A pass begins with a forward and lasts, with
its backward and the optimizer's step, until the next forward. Forward work that takes hardly any
time (gradients scaled after the backward) begins none.

One rank alone cannot distinguish transfer from waiting. Of equal collectives the fastest waited
least, so the transfer takes at most its time; of few, all may have waited long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from profiler_ext.findings.critical_path import NO_ROW, is_within
from profiler_ext.findings.facts import Facts, Rows
from profiler_ext.findings.finding import Figure, FigureUnit, Location
from profiler_ext.kineto import names, raw_events
from profiler_ext.records import share_sums, vocabulary
from profiler_ext.records.events import Ints, MaskedInts

_MIN_FORWARD = 0.05
_FORWARD, _BACKWARD = 1, 2
_MIN_FRACTION = 8
_ABSENT = str(None)
_MESSAGES = ("send", "recv")
_SIZE_ARGUMENTS = ("In msg nelems", "Out msg nelems", "dtype", "Process Group Name")
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Passes:
    """One row for each launch."""

    number: Ints  # of the pass within its step, from 0
    count: Ints  # number of passes in its step
    in_forward: Rows  # it was enqueued in the forward of its pass


def passes_of(facts: Facts) -> Passes:
    """Assign each launch to a pass of its step."""
    count = len(facts.launches)
    result = Passes(np.zeros(count, np.int64), np.ones(count, np.int64), np.zeros(count, np.bool_))
    steps = facts.launches.step.filled(-1)
    order = np.lexsort((facts.pace.enqueued_ns, steps))
    order = order[steps[order] >= 0]
    for rows in np.split(order, np.flatnonzero(np.diff(steps[order])) + 1) if len(order) else ():
        kind = _kinds(facts, rows)
        begins = (kind == _FORWARD) & (np.append(0, kind[:-1]) != _FORWARD)
        result.number[rows] = np.maximum(np.cumsum(begins) - 1, 0)
        result.count[rows] = max(int(begins.sum()), 1)
        result.in_forward[rows] = kind == _FORWARD
    return result


def _kinds(facts: Facts, rows: Ints) -> Ints:
    phase, duration_ns = facts.launches.phase, facts.launches.duration_ns[rows].copy()
    kind = np.where(phase.where(vocabulary.Phase.FORWARD)[rows], _FORWARD, 0)
    kind[phase.where(vocabulary.Phase.BACKWARD)[rows]] = _BACKWARD
    is_collective = np.isin(rows, facts.analysis.communication.launch)
    kind[is_collective], duration_ns[is_collective] = 0, 0
    kind = _forward_fill(kind)
    run = np.cumsum(np.append(0, kind[1:] != kind[:-1]))
    spent_ns = np.bincount(run, weights=duration_ns * (kind == _FORWARD))
    is_short = (kind == _FORWARD) & (spent_ns[run] < _MIN_FORWARD * spent_ns.sum())
    return np.where(is_short, _BACKWARD, kind)


def _forward_fill(kind: Ints) -> Ints:
    """Fill rows that are neither from the last one before; leading ones from the first."""
    known = np.flatnonzero(kind)
    if not len(known):
        return kind
    at = np.searchsorted(known, np.arange(len(kind)), side="right") - 1
    return kind[known[np.maximum(at, 0)]]


def overlaps_collective(facts: Facts) -> Rows:
    """Flag launches that ran while a collective was on their device, which slows them."""
    # A product on an H200 takes 53 us alone, and 100 us during an all-reduce that waits.
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


def fastest_equal_ns(facts: Facts, launches: Ints) -> MaskedInts:
    """Return each launch's fastest equal one's time; masked where fewer than eight are."""
    # Kernels of messages whose size is unknown count as equal by name.
    rows = np.searchsorted(facts.analysis.communication.launch, launches)
    # Flag launches whose number of elements is in the trace.
    given = _arguments(facts, launches)
    has_size = np.array(
        [{*sizes} != {_ABSENT} for *sizes, _, _ in given], np.bool_
    ) | are_point_to_point(facts, rows)
    kind = equal_call_ids(facts, launches)
    quickest = np.full(int(kind.max(initial=-1)) + 1, np.iinfo(np.int64).max, np.int64)
    np.minimum.at(quickest, kind, facts.launches.duration_ns[launches])
    return np.ma.array(quickest[kind], mask=(np.bincount(kind)[kind] < _MIN_FRACTION) | ~has_size)


def are_point_to_point(facts: Facts, rows: Ints) -> Rows:
    """Flag point-to-point messages; they have no number that ranks share."""
    names = facts.analysis.communication.collective
    messages = (name for name in names.strings if name.lower().startswith(_MESSAGES))
    return names.where(*messages)[rows]


def equal_call_ids(facts: Facts, launches: Ints) -> Ints:
    """Number launches that communicate so that those are alike which do the same with as much."""
    own = facts.launches.name.codes[launches].tolist()
    given = _arguments(facts, launches)
    return share_sums.codes_of((name, *each) for name, each in zip(own, given, strict=True))[0]


def equal_size_ids(facts: Facts, launches: Ints) -> Ints:
    """Number launches that communicate; equal ones move as much in one group."""
    # The backward of an all-gather is a reduce-scatter that moves as much.
    given = _arguments(facts, launches)
    return share_sums.codes_of((group, *sorted(sizes)) for *sizes, _, group in given)[0]


def is_sharding(facts: Facts, launches: Ints) -> Rows:
    """Flag launches of FSDP, which knows what it needs next."""
    events, call = facts.analysis.recording.trace.events, facts.pace.call[launches]
    codes = [at for at, text in enumerate(events.name.strings) if names.is_sharding(text)]
    ranges = np.flatnonzero(np.isin(events.name.codes, codes))
    known: Rows = call != NO_ROW
    begun_ns = np.where(known, events.start_ns[np.where(known, call, 0)], -1)
    return known & is_within(begun_ns, events.start_ns[ranges], events.end_of(ranges))


def exposed_transfers_ns(facts: Facts, rows: Ints) -> tuple[Ints, bool]:
    """Return the exposed time without waiting for other ranks, and whether it is known."""
    # Where the ranks are not merged, the fastest of enough equal ones bounds it.
    communication = facts.analysis.communication
    exposed_ns, waiting = communication.exposed_ns[rows], communication.waiting_ns[rows]
    is_alone = np.ma.getmaskarray(waiting)
    quickest = fastest_equal_ns(facts, communication.launch[rows])
    bounded_ns = np.minimum(exposed_ns, quickest.filled(np.iinfo(np.int64).max))
    has_size = not bool((is_alone & np.ma.getmaskarray(quickest)).any())
    merged_ns = np.maximum(exposed_ns - waiting.filled(0), 0)
    return np.where(is_alone, bounded_ns, merged_ns), has_size


def waited(facts: Facts, rows: Ints) -> Figure:
    """Return, as a figure, the wait of collectives for the last rank in the usual step."""
    communication = facts.analysis.communication
    waiting = communication.waiting_ns[rows]
    name = "of it waiting for the last rank"
    if np.ma.getmaskarray(waiting).all():
        return Figure(name, "one rank alone does not tell", FigureUnit.TEXT)
    waited_ns = facts.median_per_step(communication.launch[rows], waiting.filled(0))
    return Figure(name, waited_ns, FigureUnit.NS)


def dominant_location(facts: Facts, rows: Ints) -> Location:
    """Return the line, module and kernel of more than half of the exposed time."""
    # So several ranks, whose longest collectives differ by chance, name the same place.
    communication, places = facts.analysis.communication, facts.analysis.places
    launches, exposed_ns = communication.launch[rows], communication.exposed_ns[rows]
    own = [places[at] for at in facts.main_place[launches].tolist()]
    line = _most([(each.file, each.line, each.code) for each in own], exposed_ns)
    module = _most([each.module for each in own], exposed_ns)
    kernel = facts.launches.name[int(launches[int(exposed_ns.argmax())])]
    file, number, code = line or (None, None, None)
    return Location(file, number, code, module, kernel)


def _most(keys: list[_Key], amount: Ints) -> _Key | None:
    sums = share_sums.sum_by_name(zip(keys, amount.tolist(), strict=True))
    first = max(sums, key=lambda key: sums[key])
    return first if 2 * sums[first] > int(amount.sum()) else None


def _arguments(facts: Facts, launches: Ints) -> list[tuple[str, ...]]:
    """Return the sizes, the dtype and the group of each launch, as the recording has them."""
    trace = facts.analysis.recording.trace
    positions = trace.events.position[facts.launches.event[launches]].tolist()
    given = (raw_events.event_arguments(trace.raw[position]) for position in positions)
    return [tuple(str(each.get(name)) for name in _SIZE_ARGUMENTS) for each in given]


def is_repeated_per_pass(facts: Facts, passes: Passes) -> Rows:
    """Flag collectives whose reduction each pass of their step repeats."""
    # A forward's does not count: the next layer needs it in each pass.
    launches = facts.analysis.communication.launch
    result = np.zeros(len(launches), np.bool_)
    chosen = (passes.count[launches] > 1) & ~passes.in_forward[launches]
    chosen &= facts.launches.in_steps[launches]
    rows = np.flatnonzero(chosen)
    own, kind = launches[rows], equal_call_ids(facts, launches[rows])
    keys = np.stack([facts.launches.step[own].filled(-1), kind], axis=1)
    _, group = np.unique(keys, axis=0, return_inverse=True)
    for each in range(int(group.max(initial=-1)) + 1):
        members = np.flatnonzero(group == each)
        counts = np.bincount(passes.number[own[members]], minlength=passes.count[own[members[0]]])
        result[rows[members]] = bool((counts == counts[0]).all())
    return result
