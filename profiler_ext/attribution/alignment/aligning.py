"""Owns the alignment of one graph call: what it ran, in order, against its call sites, in order.

Names alone decide nothing. A work item is led to a call site only when every longest common
subsequence of the two orders says the same; whatever stays open is a gap with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from profiler_ext.attribution.alignment.learnt import Learnt
from profiler_ext.attribution.alignment.loops import LoopGrammar, is_in_loop
from profiler_ext.attribution.alignment.matching import Match
from profiler_ext.attribution.alignment.segments import OpenSegments
from profiler_ext.attribution.calls.work_items import WorkItem
from profiler_ext.attribution.trace.lookups import Flags
from profiler_ext.kineto import classify
from profiler_ext.records import CallSite, GapReason, SiteEvidence, SiteKind


def align(
    sites: Sequence[CallSite], items: Sequence[WorkItem], learnt: Learnt
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
        return _align(sites, items, learnt)
    ran = _sites_that_ran(sites, items)
    if ran is None:
        return _align_around_loops(sites, items)
    matches = _align([site for _, site in ran], items, Learnt())
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
        for item, match in zip(items, _align(sites, items, Learnt()), strict=True)
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
    sites: Sequence[CallSite], items: Sequence[WorkItem], learnt: Learnt
) -> tuple[Match, ...]:
    fits = _fits(sites, items)
    anchors = _certain_pairs(fits)
    matches = [_anchored(sites, items, anchors, at) for at in range(len(items))]
    expected: Flags = np.asarray(fits.any(axis=1))
    for at, match in OpenSegments(sites, items, expected, learnt).resolve(anchors).items():
        matches[at] = match
    return tuple(
        match or _unplaced(item, is_expected)
        for match, item, is_expected in zip(matches, items, expected.tolist(), strict=True)
    )


def _fits(sites: Sequence[CallSite], items: Sequence[WorkItem]) -> Flags:
    """Tell which item has the name of which site."""
    codes: dict[str, int] = {}
    called = np.array([codes.setdefault(n, len(codes)) for n in map(_called_name, sites)])
    on_device = np.array([codes.setdefault(n, len(codes)) for n in map(_device_name, sites)])
    rows = [(on_device if item.on_device else called) == codes.get(item.name, -1) for item in items]
    return np.array(rows, dtype=np.bool_).reshape(len(items), len(sites))


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


def _certain_pairs(fits: Flags) -> dict[int, int]:
    """Return the pairs (item, site) in which all longest common subsequences agree."""
    items, sites = np.flatnonzero(fits.any(axis=1)), np.flatnonzero(fits.any(axis=0))
    table = fits[np.ix_(items, sites)]
    if table.shape[0] == table.shape[1] and table.diagonal().all():
        return dict(zip(items.tolist(), sites.tolist(), strict=True))
    pairs = agreed_pairs(table)
    return {int(items[item]): int(sites[site]) for item, site in pairs}


def agreed_pairs(table: Flags) -> list[tuple[int, int]]:
    """Find the pairs (row, column) that stand in every longest common subsequence.

    Args:
        table: which row has the name of which column.

    Returns:
        The pairs, in order of rows.
    """
    before = _lengths(table)
    after = _lengths(table[::-1, ::-1])[::-1, ::-1]
    longest = before[-1, -1]
    through = table & (before[:-1, :-1] + after[1:, 1:] + 1 == longest)
    left_out = (before[:-1] + after[1:] == longest).any(axis=1)
    certain = (through.sum(axis=1) == 1) & ~left_out
    return [(int(item), int(through[item].argmax())) for item in np.flatnonzero(certain)]


def _lengths(table: Flags) -> npt.NDArray[np.int32]:
    """Return the length of the longest common subsequence of each pair of prefixes."""
    lengths = np.zeros((table.shape[0] + 1, table.shape[1] + 1), dtype=np.int32)
    for row, fits in enumerate(table):
        extended = np.where(fits, lengths[row, :-1] + 1, 0)
        lengths[row + 1, 1:] = np.maximum.accumulate(np.maximum(lengths[row, 1:], extended))
    return lengths


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
