"""The waits of a step for the device: for values that are read, for copies, for picks by a mask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from profiler_ext.findings.autograd_nodes import backward_of
from profiler_ext.findings.critical_path import Floats, Waits
from profiler_ext.findings.facts import (
    Facts,
    Rows,
    enclosing,
    idle_by_line,
    idle_pieces,
    location_of,
)
from profiler_ext.findings.finding import NOWHERE, Location
from profiler_ext.findings.groups import (
    OUTSIDE_BACKWARD,
    READ,
    SHORT_NS,
    Kind,
    LaunchGroup,
    busiest,
    ops_of,
    placed,
)
from profiler_ext.kineto import classify
from profiler_ext.records.events import Ints, flag_rows
from profiler_ext.records.vocabulary import IdleCause

_FINDS = "aten::nonzero"
_MOVES = "aten::to"
# These take a mask, of which they find the elements first
_PICKS = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::masked_select"})
# It reads whether an op of torch.linalg failed, on behalf of the CPU alone
_CHECKS = "aten::_linalg_check_errors"
PUTS: Final = frozenset({"aten::_index_put_impl_", "aten::index_put_", "aten::index_put"})


def lines_that_wait(facts: Facts) -> dict[Location, Ints]:
    """Return the idle pieces that each line causes at which the CPU waits for the device."""
    rows = idle_pieces(facts, IdleCause.SYNCHRONISATION, IdleCause.AFTER_SYNCHRONISATION)
    return idle_by_line(facts, rows, facts.analysis.idle.cause_place)


def copies_to_host(facts: Facts) -> Rows:
    """Flag the launches that copy tensors to the host: ``.tolist()``, ``.cpu()``."""
    return facts.named(lambda name: "Memcpy DtoH" in name)


def copies_back(facts: Facts, waits: Waits) -> Rows:
    """Flag the waits for copies to the device with no other launch since a value was read.

    The device has nothing to do by then. Only without the read it would have.
    """
    enqueued_ns, last = facts.pace.enqueued_ns, waits.last_launch
    order = np.argsort(enqueued_ns, kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    is_next = np.diff(number[last], prepend=-2) <= 1
    result, is_open = waits.is_for_value.copy(), False
    for at, is_value in enumerate(waits.is_for_value.tolist()):
        is_open = is_value or (is_open and bool(is_next[at]))
        result[at] = is_open
    return result & ~waits.is_for_value & ~waits.is_free & (last >= 0)


def copied_back(facts: Facts) -> Rows:
    """Flag the copies to the device of what the CPU made of a value that it read."""
    flags = np.zeros(len(facts.launches), np.bool_)
    if facts.replay is not None:
        waits = facts.replay.waits
        flags[waits.last_launch[copies_back(facts, waits) & (waits.last_launch >= 0)]] = True
    return flags


def waits_after(facts: Facts, launches: Ints, rounds: int) -> Rows | None:
    """Flag the waits for values after these launches, if there is one in most of the rounds."""
    flags = waits_at(facts, launches)
    return flags if 2 * flags.sum() > rounds * len(facts.analysis.steps) else None


def waits_at(facts: Facts, launches: Ints) -> Rows:
    """Flag the waits for values after these launches; there are none without a replay."""
    if facts.replay is None:
        return np.zeros(0, np.bool_)
    waits = facts.replay.waits
    flags: Rows = waits.is_for_value & np.isin(waits.last_launch, launches)
    return flags


def picks_by_masks(facts: Facts, launches: Ints) -> Iterator[LaunchGroup]:
    """Yield what ops on the elements of a mask launch and wait for, forward and backward.

    One op on all elements launches one kernel, forward and backward, and waits for nothing.
    """
    events = facts.analysis.recording.trace.events
    own = launches[facts.launches.phase.where(*OUTSIDE_BACKWARD)[launches]]
    calls = facts.called_ops(own)
    finding = calls[flag_rows(ops_of(facts, own), _FINDS.__eq__)]
    picking = np.unique(
        finding[(finding >= 0) & flag_rows(events.name, _PICKS.__contains__)[finding]]
    )
    functions: dict[tuple[str | None, str | None], list[int]] = {}
    for call, row in zip(picking.tolist(), own[_first_of(calls, picking)].tolist(), strict=True):
        if facts.main_place[row] >= 0:
            place = facts.place(row)
            functions.setdefault((place.file, place.function), []).append(call)
    for every in functions.values():
        forward = own[np.isin(calls, every)]
        rows = np.union1d(forward, backward_of(facts, np.array(every), launches))
        kept = len(every) * (1 + (len(rows) > len(forward))) / len(rows)
        count = max(round(len(every) / len(facts.analysis.steps)), 1)
        busy, waits = _busy_of_all(facts, forward, rows), waits_after(facts, rows, count)
        if waits is not None:
            yield LaunchGroup(Kind.PICKS, busiest(facts, forward), rows, count, kept, busy, waits)


def _busy_of_all(facts: Facts, forward: Ints, rows: Ints) -> Floats:
    """Return the part of the device's time of picks that an op on all elements needs.

    Elements are not found. Their gradients are put back by a sort of their places, as if one could
    be picked twice; of an op on all elements they are as many as its results.
    """
    is_found = flag_rows(ops_of(facts, rows), _FINDS.__eq__)
    is_behind = ~np.isin(rows, forward)
    is_put = is_behind & ~is_found & placed(facts, rows, lambda at: at.aten_op in PUTS)
    duration_ns = facts.launches.duration_ns[rows]
    picked_ns = int(duration_ns[~is_behind & ~is_found].sum())
    left = min(picked_ns / max(int(duration_ns[is_put].sum()), 1), 1.0)
    return np.where(is_found, 0.0, np.where(is_put, left, 1.0))


def _first_of(calls: Ints, wanted: Ints) -> Ints:
    """Return the index of the first launch of each call."""
    known, first = np.unique(calls, return_index=True)
    return first[np.searchsorted(known, wanted)]


def reads(facts: Facts, eager: Ints, others: list[Rows]) -> Iterator[LaunchGroup]:
    """Yield the reads of values, with all waits for values that do not go with others."""
    if facts.replay is None:
        return
    every = facts.replay.waits
    waits = every.is_for_value | copies_back(facts, every)
    for each in others:
        waits &= ~each
    if waits.any():
        is_short = copies_to_host(facts) & (facts.launches.duration_ns < SHORT_NS)
        # A copy that is waited for later, for an event, is what the remedy would make of it
        op = facts.launches.op_event.filled(-1)
        ends_ns = np.append(np.append(facts.analysis.recording.trace.events.end_ns, 0)[op], 0)
        in_op = every.start_ns <= ends_ns[every.last_launch]
        is_awaited = np.isin(eager, every.last_launch[waits & in_op])
        # What is made of a value on the device is not copied there; a write of it stays a write
        is_back = copied_back(facts)[eager] & placed(facts, eager, lambda at: at.aten_op == _MOVES)
        is_own = is_read(facts, eager) | (is_short[eager] & is_awaited) | is_back
        reads = eager[is_own | (checks(facts, eager) >= 0)]
        count, kept = facts.launches_per_step(reads), _without_op(facts, reads)
        yield LaunchGroup(Kind.READS, NOWHERE, reads, count, kept, 0.0, waits)


def pageable_copies(facts: Facts) -> Iterator[LaunchGroup]:
    """Yield the waits for copies to the device from memory that is not pinned.

    What copies back that the CPU made of a value waits for nothing else: those go with the reads.
    """
    if facts.replay is None:
        return
    is_copy = facts.named(lambda name: classify.pageable_copy(name) == "HtoD")
    copies = np.flatnonzero(facts.in_steps(is_copy))
    every, op = facts.replay.waits, facts.launches.op_event.filled(-1)
    ends_ns = np.append(facts.analysis.recording.trace.events.end_ns, 0)[op]
    in_op = every.start_ns < np.append(ends_ns, 0)[every.last_launch]
    waits = ~every.is_for_value & ~every.is_free & np.isin(every.last_launch, copies) & in_op
    waits &= ~copies_back(facts, every)
    if waits.any():
        count, where = facts.launches_per_step(copies), location_of(facts.place(int(copies[0])))
        yield LaunchGroup(Kind.COPIES, where, copies, count, 1.0, 1.0, waits)


def is_read(facts: Facts, launches: Ints) -> Rows:
    """Flag the launches that read a single value from the device."""
    return flag_rows(ops_of(facts, launches), READ.__eq__)


def checks(facts: Facts, launches: Ints) -> Ints:
    """Return the op around each launch that checks whether one of torch.linalg failed, or -1."""
    events, op = facts.analysis.recording.trace.events, facts.launches.op_event[launches].filled(-1)
    result, known = np.full(len(op), -1, np.int64), np.flatnonzero(op >= 0)
    around = enclosing(events, op[known], _CHECKS.__eq__)
    is_check = flag_rows(events.name, _CHECKS.__eq__)[around]
    result[known[is_check]] = around[is_check]
    return result


def _without_op(facts: Facts, launches: Ints) -> Floats:
    """Return the part of the CPU's time since the launch before in which it was in no op of it.

    Between two reads of one line nothing is left: the line reads a tensor value by value, to
    print it for example.
    """
    enqueued_ns, op = facts.pace.enqueued_ns, checks(facts, launches)
    op = np.where(op < 0, facts.called_ops(launches), op)
    order = np.argsort(enqueued_ns, kind="stable")
    own_ns = enqueued_ns[launches]
    before = order[np.maximum(np.searchsorted(enqueued_ns[order], own_ns) - 1, 0)]
    before_ns, place = enqueued_ns[before], facts.main_place
    in_row = np.isin(before, launches[is_read(facts, launches)])
    in_row &= (place[before] == place[launches]) & (place[before] >= 0)
    begin_ns = facts.analysis.recording.trace.events.start_ns[np.maximum(op, 0)]
    begin_ns = np.where(op < 0, own_ns, begin_ns)
    left_ns = np.where(in_row, 0, np.clip(begin_ns - before_ns, 0, own_ns - before_ns))
    kept: Floats = left_ns / np.maximum(own_ns - before_ns, 1)
    return kept
