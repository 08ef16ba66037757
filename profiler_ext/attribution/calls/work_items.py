"""Owns what each call of a compiled graph ran: its operators, and launches without an operator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.calls.enclosing import EnclosingRanges
from profiler_ext.attribution.calls.patterns import (
    Pattern,
    Patterns,
    device_items,
    operators,
    what_ran,
)
from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, flag_rows, take
from profiler_ext.kineto import names
from profiler_ext.records import Ints


@dataclass(frozen=True, slots=True)
class _Items:
    """Items of work: of which call, which code, which operator, and what sorts them.

    The CPU enqueued one at ``enqueue_ns``, then the device ran it at ``start_ns``: a replay
    enqueues all at once. Of equal ones those come first that have a lower ``tie``.
    """

    marker: Ints
    code: Ints
    row: Ints
    enqueue_ns: Ints
    start_ns: Ints
    tie: Ints


class WorkOfCalls:
    """What each call ran, in enqueue order: operators, and launches without an operator.

    A call that replays also shows the operators of the recording, which launched nothing; those
    are left out, as their work is what the replay runs.
    """

    def __init__(
        self, enclosing: EnclosingRanges, enqueued: EnqueuedLaunches, launches: Ints
    ) -> None:
        """Look at all calls at once.

        Args:
            enclosing: what stands around each event on its thread.
            enqueued: the launches of the trace.
            launches: those that calls made, trials left out.
        """
        self._enclosing, self._enqueued = enclosing, enqueued
        self._events, self._patterns = enclosing.events, Patterns(enclosing.events)
        cpu, self._call = enqueued.cpu[launches], enqueued.call[launches]
        operator = take(enclosing.operator, cpu, NO_ROW)
        by_operator = operator.astype(np.int64)
        self._ran = what_ran(self._events, enqueued.event[launches])
        on_device = by_operator == NO_ROW
        marker = take(enclosing.marker, cpu, NO_ROW)
        device = self._device(launches, on_device, marker.astype(np.int64))
        called = self._operators(launches, by_operator, device)
        self._lay_out(launches, by_operator, _concatenated(device, called))

    def of_call(self, marker: int) -> tuple[Pattern, Ints, Ints]:
        """Return what a call ran.

        Args:
            marker: the row of its marker.

        Returns:
            The pattern of it; its launches, by item and in enqueue order; and of each item the row
            of its operator, ``NO_ROW`` where it is none.
        """
        first, last = np.searchsorted(self._marker, (marker, marker + 1)).tolist()
        begin, end = self._begins[first], self._begins[last]
        ends = self._begins[first + 1 : last + 1] - begin
        calls = np.where(self._first[begin:end] == NO_ROW, NO_ROW, self._first[begin:end] - begin)
        pattern = self._patterns.pattern(self._code[first:last], ends, self._ran[begin:end], calls)
        return pattern, self._launches[begin:end], self._row[first:last]

    def _device(self, launches: Ints, on_device: Flags, marker: Ints) -> _Items:
        """Return the launches without an operator."""
        own, call = launches[on_device], self._call[on_device]
        replays = flag_rows(self._events.name, names.is_graph_launch)
        replayed = np.append(replays, False)[call]  # NO_ROW is the last
        return _Items(
            marker=marker[on_device],
            code=device_items(self._ran[on_device], replayed),
            row=np.full(len(own), NO_ROW),
            enqueue_ns=self._enqueued.enqueue_ns[own],
            start_ns=self._events.start_ns[self._enqueued.event[own]],
            tie=own,
        )

    def _operators(self, launches: Ints, by_operator: Ints, device: _Items) -> _Items:
        """Return the operators that calls called themselves, and those that launched anything."""
        enclosing = self._enclosing
        is_own: Flags = enclosing.operator == np.arange(len(enclosing.operator), dtype=np.int32)
        called = np.flatnonzero(is_own & (enclosing.marker != NO_ROW))
        called = called[~enclosing.is_trial(called)]
        launching, first = np.unique(by_operator, return_index=True)
        launching, first = launching[launching != NO_ROW], first[launching != NO_ROW]
        is_additional = ~np.isin(launching, called)
        rows = np.append(called, launching[is_additional])
        count = len(self._events) + len(self._enqueued)
        tie = np.append(called, launches[first[is_additional]] + len(self._events)) + count
        marker, launched = enclosing.marker[rows], np.isin(rows, launching)
        is_kept = launched | ~np.isin(marker, device.marker[(device.code & 1) == 1])
        rows, launched = rows[is_kept], launched[is_kept]
        code, start_ns = operators(self._events, rows, launched), self._events.start_ns[rows]
        zero_column = np.zeros(len(rows), dtype=np.int64)
        return _Items(marker[is_kept], code, rows, start_ns, zero_column, tie[is_kept])

    def _lay_out(self, launches: Ints, by_operator: Ints, items: _Items) -> None:
        """Sort the items by their calls and in enqueue order, and the launches by the items."""
        keys = (items.tie, items.start_ns, items.enqueue_ns, items.marker)
        order = np.lexsort(keys)
        self._marker, self._code = items.marker[order], items.code[order]
        self._row = items.row[order]
        # A launch without an operator is the item that has its number.
        wanted = np.where(by_operator == NO_ROW, launches, by_operator + len(self._enqueued))
        own = np.where(items.row == NO_ROW, items.tie, items.row + len(self._enqueued))[order]
        by_own = np.argsort(own)
        item = by_own[np.searchsorted(own[by_own], wanted)]
        by_item = np.argsort(item, kind="stable")
        self._launches, self._ran = launches[by_item], self._ran[by_item]
        self._begins = np.append(0, np.cumsum(np.bincount(item, minlength=len(own))))
        self._first = self._first_of_call(self._marker[item[by_item]], self._call[by_item])

    def _first_of_call(self, marker: Ints, call: Ints) -> Ints:
        """Return for each launch the first of its graph call that the same runtime call made."""
        keys = marker * (len(self._events) + 1) + call
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        return np.where(call == NO_ROW, NO_ROW, first[inverse.reshape(-1)])


def _concatenated(first: _Items, second: _Items) -> _Items:
    pairs = ((getattr(first, name), getattr(second, name)) for name in _Items.__slots__)
    return _Items(*(np.concatenate(pair).astype(np.int64) for pair in pairs))
