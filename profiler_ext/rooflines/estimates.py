"""Estimates per launch: bytes moved, operations computed, and the unit that computed them.

A library call may run several kernels; they share its work in proportion to their time. Each buffer
counts once, so a cache makes the bandwidth higher than the memory's. A collective has no estimate:
it waits for other ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiler_ext.kineto import classify, op_inputs
from profiler_ext.records.analysis import Analysis, Launches
from profiler_ext.records.events import Interned, Ints, MaskedInts, flag_rows, ranks
from profiler_ext.records.share_sums import sum_by
from profiler_ext.records.vocabulary import LaunchKind, SiteKind
from profiler_ext.rooflines.compute_units import Unit, UnitEvidence, unit_of_kernel
from profiler_ext.rooflines.work import (
    NOTHING_KNOWN,
    Work,
    has_fixed_sizes,
    nodes_of,
    work_of_op,
    work_of_site,
)

Rows = npt.NDArray[np.bool_]
_UNITS = tuple(Unit)
_EVIDENCE = ("", *UnitEvidence)
_NONE = -1
_NAMED = (LaunchKind.EXTERN, LaunchKind.EAGER)
_MAX_AMOUNT = 2**60  # more bytes or operations than this are not credible


@dataclass(frozen=True, slots=True)
class Calls:
    """Which launches belong to one call."""

    number: Ints
    last: Ints  # one launch of each call, which takes the rounding

    def total(self, values: Ints) -> Ints:
        """Return the sum over its call for each launch."""
        return sum_by(self.number, values, len(self.last))[self.number]

    def share(self, amount: MaskedInts, duration_ns: Ints) -> MaskedInts:
        """Share a call's amount among its launches by time; the parts add up to it."""
        call_amount = amount.filled(0)
        took_ns = np.maximum(self.total(duration_ns), 1)
        parts = np.floor(call_amount * (duration_ns / took_ns)).astype(np.int64)
        parts[self.last] += (call_amount - self.total(parts))[self.last]
        return np.ma.MaskedArray(parts, np.ma.getmaskarray(amount))


def calls_of(analysis: Analysis, is_library: Rows, is_eager: Rows) -> Calls:
    """Group launches into calls: consecutive launches of a library's site, or of an eager op."""
    # A generated kernel is a call by itself.
    launches = analysis.launches
    stream, op = launches.stream.filled(-1), launches.op_event.filled(-1)
    grouped = is_library | (is_eager & (op >= 0))
    order = np.lexsort((launches.start_ns, stream, launches.device, ~grouped))
    of_op = np.where(is_eager, op, -1)
    same = (launches.device, stream, launches.graph.data, launches.call_site.data, of_op)
    key = np.column_stack(same)[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (key[1:] != key[:-1]).any(axis=1) | ~grouped[order][1:]
    begins |= _is_repeated(analysis, order, begins) & is_library[order]
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(begins) - 1
    return Calls(number, order[np.append(begins, True)[1:]])


def _is_repeated(analysis: Analysis, order: Ints, begins: Rows) -> Rows:
    """Flag launches that repeat the first of their run: the site is called again."""
    launches, events = analysis.launches, analysis.recording.trace.events
    first = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
    op = launches.op_event.filled(-1)
    called = np.where(op < 0, -1, np.append(events.name.codes, -1)[op])
    kernel = launches.name.codes
    is_repeat = (op[order] != op[first]) & (called[order] == called[first])
    repeated: Rows = is_repeat & (kernel[order] == kernel[first])
    return repeated


@dataclass(frozen=True, slots=True)
class Units:
    """One row for each launch."""

    unit: Interned  # a ``Unit``, or ``""``
    evidence: Interned  # a ``UnitEvidence``, or ``""``


def units_of(launches: Launches, calls: Calls, works: Sequence[Work], of_launch: Ints) -> Units:
    """Return the unit that each launch used."""
    # A name outweighs operands. A call whose kernels' names show several units has none.
    own = _named(launches)
    called, is_split = _of_call(own, calls)
    by_operands = np.array(
        [_NONE if w.unit is None else _UNITS.index(w.unit) for w in works], np.int64
    )
    why = np.array([0 if w.evidence is None else _EVIDENCE.index(w.evidence) for w in works])
    unit = np.where(called != _NONE, called, by_operands[of_launch])
    by_name = np.where(
        own != _NONE,
        _EVIDENCE.index(UnitEvidence.KERNEL_NAME),
        _EVIDENCE.index(UnitEvidence.CALLED_KERNEL),
    )
    evidence = np.where(called != _NONE, by_name, why[of_launch])
    on_cpu = np.ma.getmaskarray(launches.stream)
    unit = np.where(is_split | on_cpu, _NONE, unit)
    evidence = np.where(unit == _NONE, 0, evidence)
    # The first string is the unknown unit.
    return Units(_interned(unit + 1, ("", *_UNITS)), _interned(evidence, _EVIDENCE))


def _interned(codes: Ints, strings: tuple[str, ...]) -> Interned:
    return Interned(codes.astype(np.int32), tuple(map(str, strings)))


def _named(launches: Launches) -> Ints:
    names = launches.name
    named_units = [unit_of_kernel(text) for text in names.strings]
    of_name = np.array([_NONE if u is None else _UNITS.index(u) for u in named_units], np.int64)
    by_name = of_name[names.codes] if len(of_name) else np.full(len(names), _NONE)
    return np.where(launches.kind.where(*_NAMED), by_name, _NONE)


def _of_call(own: Ints, calls: Calls) -> tuple[Ints, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Return the one unit of a call's kernel names, and which calls have several."""
    highest = np.full(len(calls.last), _NONE, np.int64)
    np.maximum.at(highest, calls.number, own)
    lowest = np.full(len(calls.last), len(_UNITS), np.int64)
    np.minimum.at(lowest, calls.number, np.where(own == _NONE, len(_UNITS), own))
    is_split = (highest != _NONE) & (lowest != highest)
    return highest[calls.number], is_split[calls.number]


@dataclass(frozen=True, slots=True)
class Estimates:
    """One row for each launch; of a call of several launches each row has the whole call's."""

    calls: Calls  # which launches are one call
    bytes: MaskedInts  # loads and stores of the call; masked where unknown
    flops: MaskedInts  # its floating-point operations; masked where unknown
    is_product: Rows  # its operations are those of products, convolutions or attention
    is_complete: Rows  # nothing else is known to take time
    units: Units  # the unit that each launch used


def estimate(analysis: Analysis) -> Estimates:
    """Estimate each launch's call; it is unknown where the work is, or where sizes are dynamic."""
    launches = analysis.launches
    works, of_launch, is_library = _works(analysis)
    is_eager = launches.kind.where(LaunchKind.EAGER)
    _add_eager_ops(analysis, is_eager, works, of_launch)
    calls = calls_of(analysis, is_library, is_eager)
    moved = _numbers([work.bytes for work in works])[of_launch]
    copied = _copied(analysis) & (of_launch == 0)
    moved[copied] = _copied_bytes(analysis, copied)
    units = units_of(launches, calls, works, of_launch)
    is_product = _flags([work.is_product for work in works])[of_launch]
    return Estimates(
        calls=calls,
        bytes=moved,
        flops=_numbers([work.flops for work in works])[of_launch],
        # A unit by the kernel's name means a product, even without a known call site.
        is_product=is_product | units.evidence.where(UnitEvidence.KERNEL_NAME),
        is_complete=_flags([work.is_complete for work in works])[of_launch] | copied,
        units=units,
    )


def _works(analysis: Analysis) -> tuple[list[Work], Ints, Rows]:
    """Return the works, the one of each launch, and which launches a library's site made."""
    launches, graphs = analysis.launches, analysis.recording.graphs
    known = ~(np.ma.getmaskarray(launches.graph) | np.ma.getmaskarray(launches.call_site))
    known &= ~launches.kind.where(LaunchKind.COMMUNICATION)
    ordinals = launches.call_site.data[known]
    every = int(ordinals.max(initial=0)) + 1
    keys = launches.graph.data[known] * every + ordinals
    distinct, inverse = ranks(keys)
    pairs = [divmod(each, every) for each in distinct.tolist()]
    works, is_library = [NOTHING_KNOWN], [False]
    nodes = {graph: nodes_of(graphs[graph]) for graph in {graph for graph, _ in pairs}}
    fixed = {graph: has_fixed_sizes(known) for graph, known in nodes.items()}
    for graph, ordinal in pairs:
        sites = graphs[graph].call_sites
        site = sites[ordinal] if ordinal < len(sites) else None
        works.append(
            NOTHING_KNOWN if site is None else work_of_site(site, nodes[graph], fixed[graph])
        )
        is_library.append(site is not None and site.kind is SiteKind.EXTERN)
    of_launch = np.zeros(len(known), np.int64)
    of_launch[known] = inverse + 1
    return works, of_launch, np.array(is_library)[of_launch]


def _add_eager_ops(analysis: Analysis, is_eager: Rows, works: list[Work], of_launch: Ints) -> None:
    trace, op_event = analysis.recording.trace, analysis.launches.op_event
    rows = np.flatnonzero(is_eager & ~np.ma.getmaskarray(op_event))
    ops, inverse = ranks(op_event.data[rows])
    inputs_of_ops = op_inputs.inputs_of(trace.raw, trace.events.position[ops])
    names, many = trace.events.name, len(inputs_of_ops.distinct)
    pairs, of_op = ranks(names.codes[ops].astype(np.int64) * many + inputs_of_ops.codes)
    numbers: dict[Work, int] = {NOTHING_KNOWN: 0}
    number_of_pair = np.zeros(len(pairs), np.int64)
    for at, (name, inputs) in enumerate(divmod(pair, many) for pair in pairs.tolist()):
        work = work_of_op(names.strings[name], inputs_of_ops.distinct[inputs])
        if work not in numbers:
            numbers[work] = len(works)
            works.append(work)
        number_of_pair[at] = numbers[work]
    of_launch[rows] = number_of_pair[of_op[inverse]]


def _copied(analysis: Analysis) -> Rows:
    kinds = analysis.launches.kind.where(LaunchKind.MEMCPY, LaunchKind.MEMSET)
    return kinds & flag_rows(analysis.launches.name, classify.is_copy_on_device)


def _copied_bytes(analysis: Analysis, copied: Rows) -> MaskedInts:
    launches = analysis.launches
    moved = analysis.recording.trace.events.bytes_moved[launches.event[copied]]
    times = np.where(launches.kind.where(LaunchKind.MEMCPY)[copied], 2, 1)
    return np.ma.MaskedArray(moved.data * times, np.ma.getmaskarray(moved))


def _numbers(values: Sequence[int | None]) -> MaskedInts:
    known = [value is not None and value <= _MAX_AMOUNT for value in values]
    filled = [value if good and value else 0 for value, good in zip(values, known, strict=True)]
    return np.ma.MaskedArray(np.array(filled, np.int64), ~np.array(known, np.bool_))


def _flags(values: Sequence[bool]) -> Rows:
    return np.array(values, np.bool_)
