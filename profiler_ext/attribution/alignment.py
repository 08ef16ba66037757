"""Owns the alignment of one graph call: what it ran, in order, against its call sites, in order.

Names alone decide nothing. A unit is led to a call site only when every longest common
subsequence of the two orders says the same; whatever stays open is a gap with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from profiler_ext.kineto import classify
from profiler_ext.records import CallSite, GapReason, SiteEvidence, SiteKind

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Unit:
    """One thing that a graph call ran: an operator, or a device event without an operator.

    Attributes:
        name: the operator's or the device event's name, without a ``graph_0_`` prefix.
        on_device: no operator is known, so the name is the device event's.
        replayed: it was launched by the replay of a CUDA graph.
        is_kernel: for a device event: neither a copy nor a memset.
        launched: for an operator: it launched something.
    """

    name: str
    on_device: bool = False
    replayed: bool = False
    is_kernel: bool = True
    launched: bool = True


@dataclass(frozen=True, slots=True)
class Match:
    """Where a unit belongs: a call site (index into the sites), or a gap.

    Attributes:
        site: index of the call site, ``None`` for a gap.
        evidence: the rule that led there.
        gap: why there is no call site.
    """

    site: int | None = None
    evidence: SiteEvidence | None = None
    gap: GapReason | None = None


def align(
    sites: Sequence[CallSite], units: Sequence[Unit], learnt: Mapping[int, int]
) -> tuple[Match, ...]:
    """Lead each unit of one graph call to its call site.

    Args:
        sites: the call sites in program order.
        units: what ran, in the order in which it was enqueued.
        learnt: device events of a library call by site index, from calls without replay.

    Returns:
        One match for each unit.
    """
    fits = _fits(sites, units)
    anchors = _certain_pairs(fits)
    matches = [_anchored(sites, units, anchors, at) for at in range(len(units))]
    for run in _open_runs(sites, units, anchors):
        for at, match in run.resolve(learnt):
            matches[at] = match
    for at, site in _nameless_pairs(sites, units, anchors, fits).items():
        matches[at] = Match(site, SiteEvidence.CALL_ORDER)
    return tuple(
        match or _unplaced(unit, bool(row.any()))
        for match, unit, row in zip(matches, units, fits, strict=True)
    )


def _fits(sites: Sequence[CallSite], units: Sequence[Unit]) -> Bools:
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


def _certain_pairs(fits: Bools) -> dict[int, int]:
    """Return the pairs (unit, site) in which all longest common subsequences agree."""
    units, sites = np.flatnonzero(fits.any(axis=1)), np.flatnonzero(fits.any(axis=0))
    table = fits[np.ix_(units, sites)]
    if table.shape[0] == table.shape[1] and table.diagonal().all():
        return dict(zip(units.tolist(), sites.tolist(), strict=True))
    pairs = _agreed(table)
    return {int(units[unit]): int(sites[site]) for unit, site in pairs}


def _agreed(table: Bools) -> list[tuple[int, int]]:
    """Find the pairs that stand in every longest common subsequence."""
    before = _lengths(table)
    after = _lengths(table[::-1, ::-1])[::-1, ::-1]
    longest = before[-1, -1]
    through = table & (before[:-1, :-1] + after[1:, 1:] + 1 == longest)
    left_out = (before[:-1] + after[1:] == longest).any(axis=1)
    certain = (through.sum(axis=1) == 1) & ~left_out
    return [(int(unit), int(through[unit].argmax())) for unit in np.flatnonzero(certain)]


def _lengths(table: Bools) -> npt.NDArray[np.int32]:
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
    return SiteEvidence.CALL_ORDER_OP if is_library else _order_evidence(unit)


def _order_evidence(unit: Unit) -> SiteEvidence:
    return SiteEvidence.REPLAY_ORDER if unit.replayed else SiteEvidence.CALL_ORDER


@dataclass(frozen=True, slots=True)
class _OpenRun:
    """The sites between two anchors, and the device events between the same two.

    Attributes:
        sites: indices of the sites.
        units: indices of the units.
        are_libraries: every site calls a library, whose kernels' names nobody knows.
        all_kernels: every unit is a kernel.
        evidence: how the units were enqueued.
    """

    sites: tuple[int, ...]
    units: tuple[int, ...]
    are_libraries: bool
    all_kernels: bool
    evidence: SiteEvidence

    def resolve(self, learnt: Mapping[int, int]) -> list[tuple[int, Match]]:
        """Give each unit its site where the counts decide, else the reason why not."""
        if not self.sites:
            return self._all(Match(gap=GapReason.WRAPPER_GLUE))
        if not self.are_libraries:
            return self._all(Match(gap=GapReason.ALIGNMENT_MISMATCH))
        counts = self._counts(learnt)
        if counts is None:
            return self._all(Match(gap=GapReason.AMBIGUOUS_EXTERN_RUN))
        if sum(counts) != len(self.units):
            return self._all(Match(gap=GapReason.ALIGNMENT_MISMATCH))
        owners = np.repeat(self.sites, counts).tolist()
        return [
            (unit, Match(site, self.evidence))
            for unit, site in zip(self.units, owners, strict=True)
        ]

    def _counts(self, learnt: Mapping[int, int]) -> list[int] | None:
        if all(site in learnt for site in self.sites):
            return [learnt[site] for site in self.sites]
        if len(self.sites) == 1:
            return [len(self.units)]
        one_each = self.all_kernels and len(self.sites) == len(self.units)
        return [1] * len(self.sites) if one_each else None

    def _all(self, match: Match) -> list[tuple[int, Match]]:
        return [(unit, match) for unit in self.units]


def _open_runs(
    sites: Sequence[CallSite], units: Sequence[Unit], anchors: Mapping[int, int]
) -> list[_OpenRun]:
    """Return what lies open between each anchor and the next, where device events do."""
    bounds = [(-1, -1), *sorted(anchors.items()), (len(units), len(sites))]
    runs = []
    for (unit_before, site_before), (unit_after, site_after) in pairwise(bounds):
        open_sites = tuple(range(site_before + 1, site_after))
        open_units = tuple(u for u in range(unit_before + 1, unit_after) if units[u].on_device)
        if open_units:
            runs.append(_open_run(sites, units, open_sites, open_units))
    return runs


def _open_run(
    sites: Sequence[CallSite],
    units: Sequence[Unit],
    open_sites: tuple[int, ...],
    open_units: tuple[int, ...],
) -> _OpenRun:
    return _OpenRun(
        sites=open_sites,
        units=open_units,
        are_libraries=all(sites[site].kind is SiteKind.EXTERN for site in open_sites),
        all_kernels=all(units[unit].is_kernel for unit in open_units),
        evidence=_order_evidence(units[open_units[0]]),
    )


def _nameless_pairs(
    sites: Sequence[CallSite], units: Sequence[Unit], anchors: Mapping[int, int], fits: Bools
) -> dict[int, int]:
    """Pair sites whose operator capture could not name with the operators left over there.

    Only where nothing else lies open between two anchors, and the numbers agree.
    """
    pairs: dict[int, int] = {}
    bounds = [(-1, -1), *sorted(anchors.items()), (len(units), len(sites))]
    for (unit_before, site_before), (unit_after, site_after) in pairwise(bounds):
        open_sites = range(site_before + 1, site_after)
        nameless = all(sites[s].kind is SiteKind.EXTERN and not sites[s].op for s in open_sites)
        called = [u for u in range(unit_before + 1, unit_after) if units[u].launched]
        unexpected = all(_is_unexpected_op(units[u], bool(fits[u].any())) for u in called)
        if nameless and unexpected and len(called) == len(open_sites):
            pairs.update(zip(called, open_sites, strict=True))
    return pairs


def _is_unexpected_op(unit: Unit, is_expected: bool) -> bool:
    return not unit.on_device and not is_expected and classify.is_dispatched_op(unit.name)


def _unplaced(unit: Unit, is_expected: bool) -> Match:
    """Say why a called unit has no site: the wrapper's own work, or a contradiction."""
    contradicts = is_expected or classify.is_generated_kernel(unit.name)
    return Match(gap=GapReason.ALIGNMENT_MISMATCH if contradicts else GapReason.WRAPPER_GLUE)
