"""Owns the alignment of one graph call: what it ran, in order, against its call sites, in order.

Names alone decide nothing. A unit is led to a call site only when every longest common
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
from profiler_ext.attribution.alignment.runs import OpenRuns
from profiler_ext.attribution.calls.units import Unit
from profiler_ext.attribution.trace.lookups import Flags
from profiler_ext.kineto import classify
from profiler_ext.records import CallSite, GapReason, SiteEvidence, SiteKind


def align(sites: Sequence[CallSite], units: Sequence[Unit], learnt: Learnt) -> tuple[Match, ...]:
    """Lead each unit of one graph call to its call site.

    Args:
        sites: the call sites in program order.
        units: what ran, in the order in which it was enqueued.
        learnt: what calls without replay taught of library calls.

    Returns:
        One match for each unit.
    """
    if not any(map(is_in_loop, sites)):
        return _align(sites, units, learnt)
    ran = _sites_that_ran(sites, units)
    if ran is None:
        return _align_around_loops(sites, units)
    matches = _align([site for _, site in ran], units, Learnt())
    return tuple(
        match if match.site is None else replace(match, site=ran[match.site][0])
        for match in matches
    )


def _align_around_loops(sites: Sequence[CallSite], units: Sequence[Unit]) -> tuple[Match, ...]:
    """Lead what ran outside of loops to its sites; how often those ran cannot be told."""
    inside = {_called_name(site) for site in sites if is_in_loop(site)}
    return tuple(
        Match(gap=GapReason.ALIGNMENT_MISMATCH)
        if unit.name in inside or (match.site is not None and is_in_loop(sites[match.site]))
        else match
        for unit, match in zip(units, _align(sites, units, Learnt()), strict=True)
    )


def _sites_that_ran(
    sites: Sequence[CallSite], units: Sequence[Unit]
) -> list[tuple[int, CallSite]] | None:
    """Return the sites as often as they ran, each with its index, if that can be told.

    A C++ kernel beside a GPU's work leaves no event: one that nothing names may have run.
    """
    ran = {unit.name for unit in units}
    seen = [at for at, s in enumerate(sites) if s.kind is not SiteKind.CPP or s.kernel in ran]
    grammar = LoopGrammar([sites[at] for at in seen], _called_name)
    names = [unit.name for unit in units if grammar.knows(unit.name)]
    order = grammar.order(names)
    if order is None:
        return None
    pairs = [(seen[at], name) for at, name in zip(order, names, strict=True)]
    return [(at, replace(sites[at], op=name) if sites[at].op else sites[at]) for at, name in pairs]


def _align(sites: Sequence[CallSite], units: Sequence[Unit], learnt: Learnt) -> tuple[Match, ...]:
    fits = _fits(sites, units)
    anchors = _certain_pairs(fits)
    matches = [_anchored(sites, units, anchors, at) for at in range(len(units))]
    expected: Flags = np.asarray(fits.any(axis=1))
    for at, match in OpenRuns(sites, units, expected, learnt).resolve(anchors).items():
        matches[at] = match
    return tuple(
        match or _unplaced(unit, is_expected)
        for match, unit, is_expected in zip(matches, units, expected.tolist(), strict=True)
    )


def _fits(sites: Sequence[CallSite], units: Sequence[Unit]) -> Flags:
    """Tell which unit has the name of which site."""
    codes: dict[str, int] = {}
    called = np.array([codes.setdefault(n, len(codes)) for n in map(_called_name, sites)])
    on_device = np.array([codes.setdefault(n, len(codes)) for n in map(_device_name, sites)])
    rows = [(on_device if unit.on_device else called) == codes.get(unit.name, -1) for unit in units]
    return np.array(rows, dtype=np.bool_).reshape(len(units), len(sites))


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
    """Return the pairs (unit, site) in which all longest common subsequences agree."""
    units, sites = np.flatnonzero(fits.any(axis=1)), np.flatnonzero(fits.any(axis=0))
    table = fits[np.ix_(units, sites)]
    if table.shape[0] == table.shape[1] and table.diagonal().all():
        return dict(zip(units.tolist(), sites.tolist(), strict=True))
    pairs = agreed_pairs(table)
    return {int(units[unit]): int(sites[site]) for unit, site in pairs}


def agreed_pairs(table: Flags) -> list[tuple[int, int]]:
    """Find the pairs (row, column) that stand in every longest common subsequence.

    Args:
        table: which row has the name of which column.
    """
    before = _lengths(table)
    after = _lengths(table[::-1, ::-1])[::-1, ::-1]
    longest = before[-1, -1]
    through = table & (before[:-1, :-1] + after[1:, 1:] + 1 == longest)
    left_out = (before[:-1] + after[1:] == longest).any(axis=1)
    certain = (through.sum(axis=1) == 1) & ~left_out
    return [(int(unit), int(through[unit].argmax())) for unit in np.flatnonzero(certain)]


def _lengths(table: Flags) -> npt.NDArray[np.int32]:
    """Return the length of the longest common subsequence of each pair of prefixes."""
    lengths = np.zeros((table.shape[0] + 1, table.shape[1] + 1), dtype=np.int32)
    for row, fits in enumerate(table):
        extended = np.where(fits, lengths[row, :-1] + 1, 0)
        lengths[row + 1, 1:] = np.maximum.accumulate(np.maximum(lengths[row, 1:], extended))
    return lengths


def _anchored(
    sites: Sequence[CallSite], units: Sequence[Unit], anchors: Mapping[int, int], at: int
) -> Match | None:
    if at not in anchors:
        return None
    return Match(anchors[at], _evidence(sites[anchors[at]], units[at]))


def _evidence(site: CallSite, unit: Unit) -> SiteEvidence:
    is_library = site.kind is SiteKind.EXTERN
    return SiteEvidence.CALL_ORDER_OP if is_library else unit.order_evidence


def _unplaced(unit: Unit, is_expected: bool) -> Match:
    """Say why a called unit has no site: the wrapper's own work, or a contradiction."""
    contradicts = is_expected or classify.is_generated_kernel(unit.name)
    return Match(gap=GapReason.ALIGNMENT_MISMATCH if contradicts else GapReason.WRAPPER_GLUE)
