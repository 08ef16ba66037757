"""Owns what launches moved and computed: bytes and operations, call by call.

They count what a kernel asks for, each buffer once, so what a cache serves makes the bandwidth
higher than the memory's. A collective has none: it waits for other ranks, and moves between
devices what it moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.kineto import classify
from profiler_ext.kineto.op_inputs import inputs_of
from profiler_ext.records import Analysis, Ints, LaunchKind, MaskedInts, SiteKind, ranks
from profiler_ext.rooflines.calls import Calls, Rows, calls_of
from profiler_ext.rooflines.op_work import work_of_op
from profiler_ext.rooflines.units import Units, units_of
from profiler_ext.rooflines.words import UnitEvidence
from profiler_ext.rooflines.work import NOTHING_KNOWN, Work, has_fixed_sizes, nodes_of, work_of_site

_MAX_AMOUNT = 2**60
"""What a file says of more bytes or operations than this is not true."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """One row for each launch; of a call of several launches each row has the whole call's.

    Attributes:
        calls: which launches are one call.
        bytes: what the call loads and stores; masked where that is not known.
        flops: its floating-point operations; masked where that is not known.
        is_product: its operations are those of products, convolutions or attention.
        is_complete: nothing else is known to take it time.
        units: the unit that each launch used.
    """

    calls: Calls
    bytes: MaskedInts
    flops: MaskedInts
    is_product: Rows
    is_complete: Rows
    units: Units


def estimate(analysis: Analysis) -> Estimates:
    """Return what the calls of all launches move and compute.

    Args:
        analysis: what attribution found.

    Returns:
        One row for each launch. A launch that nobody knows the work of has none, nor has one
        whose sizes are dynamic.
    """
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
        # What a kernel's name tells of is a product, though its call site may not be known.
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
    """Add the works of eager ops, and say which launches have them."""
    trace, op_event = analysis.recording.trace, analysis.launches.op_event
    rows = np.flatnonzero(is_eager & ~np.ma.getmaskarray(op_event))
    ops, inverse = ranks(op_event.data[rows])
    inputs_of_ops = inputs_of(trace.raw, trace.events.position[ops])
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
    """Which launches only copy or fill memory of the device."""
    column = analysis.launches.name
    inside = np.array([classify.is_copy_on_device(text) for text in column.strings], np.bool_)
    kinds = analysis.launches.kind.where(LaunchKind.MEMCPY, LaunchKind.MEMSET)
    return kinds & (inside[column.codes] if len(inside) else kinds)


def _copied_bytes(analysis: Analysis, copied: Rows) -> MaskedInts:
    """Return what copies and fills move: a copy loads and stores each byte."""
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
