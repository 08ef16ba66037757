"""Owns the sums that report.html can be narrowed to: by rank and step, of each site's parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiler_ext.exporters.html.choices import rank_number, selectable_ranks, selectable_steps
from profiler_ext.exporters.html.sites import Sites, share_offsets
from profiler_ext.exporters.tables.selection import Rows
from profiler_ext.records import Analysis, Ints


@dataclass(frozen=True, slots=True)
class Slice:
    """A rank or all, and a step or all.

    Attributes:
        analyses: of the ranks that profiled it.
        rank: the rank; ``None`` for all that there are.
        step: the step; ``None`` for all.
    """

    analyses: tuple[Analysis, ...]
    rank: int | None
    step: int | None

    @property
    def wall_ns(self) -> int:
        """Wall time of its steps, of all its ranks and devices."""
        return sum(
            line.duration_ns
            for analysis in self.analyses
            for line in analysis.ledger
            if self.step in (None, line.step)
        )

    @property
    def spans(self) -> int:
        """How many steps it sums: of each of its ranks."""
        numbers = (step.number for analysis in self.analyses for step in analysis.steps)
        return sum(self.step in (None, number) for number in numbers)


@dataclass(frozen=True, slots=True)
class Choices:
    """What the page can be narrowed to, and what was left out.

    Attributes:
        slices: each rank and step that can be chosen; the first is the whole.
        ranks: rank to what tells it apart.
        steps: step to what tells it apart.
        all_ranks: how many ranks there are.
        all_steps: how many steps there are.
    """

    slices: tuple[Slice, ...]
    ranks: Mapping[int, str]
    steps: Mapping[int, str]
    all_ranks: int
    all_steps: int


def choices(analyses: Sequence[Analysis], sites: Sites) -> Choices:
    """Return what the page can be narrowed to.

    Args:
        analyses: one for each rank.
        sites: their sites.
    """
    ranks = selectable_ranks(analyses)
    parts = sum(2 + len(site.places) for site in sites.sites)
    steps = selectable_steps(analyses, parts * (len(ranks) + (len(ranks) > 1)))
    every = {step.number for analysis in analyses for step in analysis.steps}
    slices = tuple(_slices(tuple(analyses), ranks, steps))
    return Choices(slices, ranks, steps, len(analyses), len(every))


def _slices(
    analyses: tuple[Analysis, ...], ranks: Mapping[int, str], steps: Mapping[int, str]
) -> Iterator[Slice]:
    each_step = [None, *(steps if len(steps) > 1 else ())]
    for rank in [None, *(ranks if len(analyses) > 1 else ())]:
        own = tuple(each for each in analyses if rank in (None, rank_number(each)))
        for step in each_step:
            yield Slice(tuple(each for each in own if _has(each, step)), rank, step)


def _has(analysis: Analysis, step: int | None) -> bool:
    return step is None or any(each.number == step for each in analysis.steps)


class Sums:
    """Sums launches and the times of their parts, of any slice."""

    def __init__(self, analyses: Sequence[Analysis], sites: Sites) -> None:
        """Find the part of which site each share is.

        Args:
            analyses: one for each rank.
            sites: their sites.
        """
        counts = [len(site.places) for site in sites.sites]
        self._offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        pairs = zip(analyses, sites.of_launch, strict=True)
        self._of = {rank_number(a): (of_launch, self._parts(a, of_launch)) for a, of_launch in pairs}

    def _parts(self, analysis: Analysis, of_launch: Ints) -> Ints:
        """Return of each share the number of its part, over all sites."""
        launch = analysis.shares.launch
        within = np.arange(len(launch)) - share_offsets(analysis)[launch]
        parts: Ints = np.append(self._offsets[:-1], 0)[of_launch[launch]] + within
        return parts

    def of(self, chosen: Slice) -> dict[str, Any]:
        """Return the sites that ran in a slice, how often, and the time of each of their parts.

        Args:
            chosen: the slice.
        """
        launches = np.zeros(len(self._offsets) - 1, np.int64)
        times = np.zeros(int(self._offsets[-1]), np.int64)
        for analysis in chosen.analyses:
            of_launch, parts = self._of[rank_number(analysis)]
            ran = _ran(analysis, chosen.step)
            launches += np.bincount(of_launch[ran], minlength=len(launches))
            shares = ran[analysis.shares.launch]
            np.add.at(times, parts[shares], analysis.shares.duration_ns[shares])
        return self._written(launches, times)

    def _written(self, launches: Ints, times: Ints) -> dict[str, Any]:
        there = np.flatnonzero(launches)
        kept = np.repeat(launches > 0, np.diff(self._offsets))
        return {
            "sites": there.tolist(),
            "launches": launches[there].tolist(),
            "times": times[kept].tolist(),
        }


def _ran(analysis: Analysis, step: int | None) -> Rows:
    steps = analysis.launches.step
    within = ~np.ma.getmaskarray(steps)
    return within if step is None else within & (np.ma.getdata(steps) == step)
