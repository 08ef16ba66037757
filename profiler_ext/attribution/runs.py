"""Owns what lies open between the anchors of an alignment: sites and units that no name ties.

Replayed library kernels carry no operator and no name that their call site knows, so how
many of them belong to a site decides; where that is not known, the run is a gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product

import numpy as np

from profiler_ext.attribution.columns import Flags
from profiler_ext.attribution.matching import Match, Unit
from profiler_ext.kineto import classify
from profiler_ext.records import CallSite, GapReason, SiteEvidence, SiteKind

_MOST_SITES = 6
"""In a longer run too many ways would have to be tried."""


@dataclass(frozen=True, slots=True)
class Run:
    """The sites between an anchor and the next, and the units between the same two."""

    sites: tuple[int, ...]
    units: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Learnt:
    """How many device events library calls launch, from calls without replay.

    Attributes:
        counts: by index of the call site.
        elsewhere: those that only another run saw.
    """

    counts: Mapping[int, int] = field(default_factory=dict)
    elsewhere: frozenset[int] = frozenset()


class OpenRuns:
    """Leads what lies open in one graph call to its call sites, as far as counts decide."""

    def __init__(
        self,
        sites: Sequence[CallSite],
        units: Sequence[Unit],
        expected: Flags,
        learnt: Learnt,
    ) -> None:
        """Note what was called.

        Args:
            sites: the call sites.
            units: what ran.
            expected: units that have the name of some site.
            learnt: what calls without replay taught of library calls.
        """
        self._sites, self._units = sites, units
        self._expected, self._learnt = expected, learnt.counts
        self._elsewhere = learnt.elsewhere

    def resolve(self, anchors: Mapping[int, int]) -> dict[int, Match]:
        """Return the matches of the open units of which something can be said."""
        runs = self._between(anchors)
        starved = [self._is_starved(run) for run in runs]
        doubted = [any(starved[max(at - 1, 0) : at + 2]) for at in range(len(runs))]
        found: dict[int, Match] = {}
        for run, is_doubted in zip(runs, doubted, strict=True):
            found.update(self._on_device(run, is_doubted))
            found.update(self._nameless(run))
        return found

    def _between(self, anchors: Mapping[int, int]) -> list[Run]:
        ends = [(-1, -1), *sorted(anchors.items()), (len(self._units), len(self._sites))]
        return [
            Run(tuple(range(site + 1, next_site)), tuple(range(unit + 1, next_unit)))
            for (unit, site), (next_unit, next_site) in pairwise(ends)
        ]

    def _is_starved(self, run: Run) -> bool:
        """Tell whether sites ran less than they must: then the neighbours may have theirs."""
        return len(run.units) < sum(min(self._options(site), default=1) for site in run.sites)

    def _on_device(self, run: Run, is_doubted: bool) -> dict[int, Match]:
        """Give each device event its site where the counts decide, else the reason why not."""
        units = [unit for unit in run.units if self._units[unit].on_device]
        if not run.sites:
            return dict.fromkeys(units, Match(gap=GapReason.WRAPPER_GLUE))
        counts = self._counts(run, units)
        fits = counts is None or sum(counts) == len(units)
        if is_doubted or not fits or not self._are_libraries(run):
            return dict.fromkeys(units, Match(gap=GapReason.ALIGNMENT_MISMATCH))
        if counts is None:
            return dict.fromkeys(units, Match(gap=GapReason.AMBIGUOUS_EXTERN_RUN))
        owners = np.repeat(run.sites, counts).tolist()
        pairs = zip(units, owners, strict=True)
        return {unit: Match(site, self._evidence(run, unit)) for unit, site in pairs}

    def _evidence(self, run: Run, unit: int) -> SiteEvidence:
        """Where several sites share a run, what is known of their counts placed the unit."""
        is_stored = len(run.sites) > 1 and not self._elsewhere.isdisjoint(run.sites)
        return SiteEvidence.STORED_COUNTS if is_stored else self._units[unit].order_evidence

    def _counts(self, run: Run, units: Sequence[int]) -> list[int] | None:
        """Return how many device events each site launched, ``None`` where that is open."""
        if all(site in self._learnt for site in run.sites):
            return self._learnt_counts(run, len(units))
        if len(run.sites) == 1:
            return [len(units)]
        all_kernels = all(self._units[unit].is_kernel for unit in units)
        return [1] * len(units) if all_kernels and len(units) == len(run.sites) else None

    def _learnt_counts(self, run: Run, units: int) -> list[int]:
        """Return what was learnt of each site, or the one way in which its operator explains all.

        A library's first call in a process may launch more than its later ones; what other
        sites of the same operator launched says how many those are. What another run learnt
        is taken as it is, or not at all.
        """
        own = [self._learnt[site] for site in run.sites]
        is_stored = not self._elsewhere.isdisjoint(run.sites)
        if sum(own) == units or is_stored or len(run.sites) > _MOST_SITES:
            return own
        ways = product(*(sorted(self._options(site)) for site in run.sites))
        fitting = [way for way in ways if sum(way) == units]
        return list(fitting[0]) if len(fitting) == 1 else own

    def _options(self, site: int) -> set[int]:
        """Return how many device events the site's operator launched, here or elsewhere."""
        op = self._sites[site].op
        same = {n for at, n in self._learnt.items() if op and self._sites[at].op == op}
        return same | ({self._learnt[site]} if site in self._learnt else set())

    def _are_libraries(self, run: Run) -> bool:
        return all(self._sites[site].kind is SiteKind.EXTERN for site in run.sites)

    def _nameless(self, run: Run) -> dict[int, Match]:
        """Pair sites whose operator capture could not name with the operators left over.

        Only where nothing else lies open in the run, and the numbers agree.
        """
        called = [unit for unit in run.units if self._units[unit].launched]
        is_nameless = self._are_libraries(run) and not any(self._sites[s].op for s in run.sites)
        is_left_over = all(self._is_left_over(unit) for unit in called)
        if not (is_nameless and is_left_over and len(called) == len(run.sites)):
            return {}
        by_order = SiteEvidence.CALL_ORDER
        return {u: Match(s, by_order) for u, s in zip(called, run.sites, strict=True)}

    def _is_left_over(self, at: int) -> bool:
        unit = self._units[at]
        is_operator = not unit.on_device and classify.is_dispatched_op(unit.name)
        return is_operator and not self._expected[at]
