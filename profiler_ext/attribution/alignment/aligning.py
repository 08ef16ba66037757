"""Owns the alignment of one graph call: what it ran, in order, against its call sites, in order.

Names alone decide nothing. A work item is led to a call site only when every longest common
subsequence of the two orders says the same; whatever stays open is a gap with its reason, and so is
all of a call whose order is too far from that of the sites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from profiler_ext.attribution.alignment.agreement import Names, agreed_pairs
from profiler_ext.attribution.alignment.learnt import KnownKernels
from profiler_ext.attribution.alignment.loops import LoopGrammar, is_in_loop
from profiler_ext.attribution.alignment.matching import Match
from profiler_ext.attribution.alignment.segments import OpenSegments
from profiler_ext.attribution.calls.patterns import WorkItem
from profiler_ext.attribution.trace.lookups import Flags
from profiler_ext.kineto import classify
from profiler_ext.records import CallSite, GapReason, SiteEvidence, SiteKind

_UNKNOWN = -2
"""The number of a name that no site has."""


def align(
    sites: Sequence[CallSite], items: Sequence[WorkItem], known_kernels: KnownKernels
) -> tuple[Match, ...]:
    """Lead each item of one graph call to its call site.

    Args:
        sites: the call sites in program order.
        items: what ran, in the order in which it was enqueued.
        learnt: what calls without replay taught of library calls.

    Returns:
        One match for each item.
    """
    if not any(map(is_in_loop, sites)):
        return _align(sites, items, known_kernels)
    ran = _sites_that_ran(sites, items)
    if ran is None:
        return _align_around_loops(sites, items)
    matches = _align([site for _, site in ran], items, KnownKernels())
    return tuple(
        match if match.site is None else replace(match, site=ran[match.site][0])
        for match in matches
    )


def _align_around_loops(sites: Sequence[CallSite], items: Sequence[WorkItem]) -> tuple[Match, ...]:
    """Lead what ran outside of loops to its sites; how often those ran cannot be told."""
    inside = {_called_name(site) for site in sites if is_in_loop(site)}
    return tuple(
        Match(gap=GapReason.ALIGNMENT_MISMATCH)
        if item.name in inside or (match.site is not None and is_in_loop(sites[match.site]))
        else match
        for item, match in zip(items, _align(sites, items, KnownKernels()), strict=True)
    )


def _sites_that_ran(
    sites: Sequence[CallSite], items: Sequence[WorkItem]
) -> list[tuple[int, CallSite]] | None:
    """Return the sites as often as they ran, each with its index, if that can be told.

    A C++ kernel beside a GPU's work leaves no event: one that nothing names may have run.
    """
    ran = {item.name for item in items}
    visible = [at for at, s in enumerate(sites) if s.kind is not SiteKind.CPP or s.kernel in ran]
    grammar = LoopGrammar([sites[at] for at in visible], _called_name)
    names = [item.name for item in items if grammar.knows(item.name)]
    order = grammar.order(names)
    if order is None:
        return None
    pairs = [(visible[at], name) for at, name in zip(order, names, strict=True)]
    return [(at, replace(sites[at], op=name) if sites[at].op else sites[at]) for at, name in pairs]


def _align(
    sites: Sequence[CallSite], items: Sequence[WorkItem], known_kernels: KnownKernels
) -> tuple[Match, ...]:
    names = _names(sites, items)
    expected = _expected(names)
    anchors = _certain_pairs(names, expected)
    if anchors is None:
        return (Match(gap=GapReason.ALIGNMENT_MISMATCH),) * len(items)
    matches = [_anchored(sites, items, anchors, at) for at in range(len(items))]
    for at, match in OpenSegments(sites, items, expected, known_kernels).resolve(anchors).items():
        matches[at] = match
    return tuple(
        match or _unplaced(item, is_expected)
        for match, item, is_expected in zip(matches, items, expected.tolist(), strict=True)
    )


def _names(sites: Sequence[CallSite], items: Sequence[WorkItem]) -> Names:
    """Number the names of sites, called and on the device, and those of the items."""
    codes: dict[str, int] = {}
    columns = [
        [codes.setdefault(name, len(codes)) for name in map(name_of, sites)]
        for name_of in (_called_name, _device_name)
    ]
    return Names(
        rows=np.array([codes.get(item.name, _UNKNOWN) for item in items], dtype=np.int64),
        kinds=np.array([int(item.on_device) for item in items], dtype=np.int64),
        columns=np.array(columns, dtype=np.int64).reshape(2, len(sites)),
    )


def _expected(names: Names) -> Flags:
    """Tell which item has the name of some site."""
    by_kind = np.array([np.isin(names.rows, known) for known in names.columns])
    expected: Flags = by_kind[names.kinds, np.arange(len(names.rows))]
    return expected


def _called_name(site: CallSite) -> str:
    """Return what the profiler calls the operator that this site calls."""
    return (site.op or "") if site.kind is SiteKind.EXTERN else site.kernel


def _device_name(site: CallSite) -> str:
    """Return the name of the site's kernel on the device; a library's own is not known."""
    if site.kind is SiteKind.EXTERN:
        return ""
    if site.kind is SiteKind.USER_TRITON:
        return device_names(site)[-1]
    return site.kernel


def device_names(site: CallSite) -> tuple[str, ...]:
    """Return the names that a generated kernel's device event may have.

    A user's Triton kernel runs under its function's name; Inductor numbers its calls.
    """
    stem, _, number = site.kernel.rpartition("_")
    is_numbered = site.kind is SiteKind.USER_TRITON and number.isdigit()
    return (site.kernel, stem) if is_numbered else (site.kernel,)


def _certain_pairs(names: Names, expected: Flags) -> dict[int, int] | None:
    """Return the pairs (item, site) in which all longest common subsequences agree.

    ``None`` where the orders differ too much for that to be found out.
    """
    items = np.flatnonzero(expected)
    ran = [
        np.isin(known, names.rows[names.kinds == kind]) for kind, known in enumerate(names.columns)
    ]
    sites = np.flatnonzero(np.logical_or.reduce(ran))
    named = Names(names.rows[items], names.kinds[items], names.columns[:, sites])
    if named.are_pairwise_equal():
        return dict(zip(items.tolist(), sites.tolist(), strict=True))
    pairs = agreed_pairs(named)
    return None if pairs is None else {int(items[item]): int(sites[at]) for item, at in pairs}


def _anchored(
    sites: Sequence[CallSite], items: Sequence[WorkItem], anchors: Mapping[int, int], at: int
) -> Match | None:
    if at not in anchors:
        return None
    return Match(anchors[at], _evidence(sites[anchors[at]], items[at]))


def _evidence(site: CallSite, item: WorkItem) -> SiteEvidence:
    is_library = site.kind is SiteKind.EXTERN
    return SiteEvidence.CALL_ORDER_OP if is_library else item.order_evidence


def _unplaced(item: WorkItem, is_expected: bool) -> Match:
    """Say why a called item has no site: the wrapper's own work, or a contradiction."""
    contradicts = is_expected or classify.is_generated_kernel(item.name)
    return Match(gap=GapReason.ALIGNMENT_MISMATCH if contradicts else GapReason.WRAPPER_GLUE)
