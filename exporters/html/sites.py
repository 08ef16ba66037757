"""Launches that differ only in time, as one row; every name once, by number.

A report of many steps and ranks holds each call site once, so its size follows the model, not the
number of launches.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Codes, Ints, numbered
from profiler_ext.records.share_sums import kernel_names, share_offsets, sum_by, sum_by_name
from profiler_ext.records.vocabulary import Scope

ABSENT = -1
MAX_KERNELS = 2_000
# Each launch's kernel number, and each number's name, device name and kind.
_Kernels = tuple[Ints, list[tuple[str, str, str]]]


class Pool:
    """Numbers distinct values by first appearance."""

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}

    def code(self, value: Hashable) -> int:
        """Return the number of a value, ``ABSENT`` for ``None``."""
        return ABSENT if value is None else self._codes.setdefault(value, len(self._codes))

    def codes(self) -> Mapping[Any, int]:
        """Return the number of each value."""
        return self._codes

    def values(self) -> list[Any]:
        """Return the values by number."""
        return list(self._codes)


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools of a page, which its rows index."""

    lines: Pool = field(default_factory=Pool)  # file number and line
    modules: Pool = field(default_factory=Pool)  # path and class
    ops: Pool = field(default_factory=Pool)
    gaps: Pool = field(default_factory=Pool)  # gap reasons
    kernels: Pool = field(default_factory=Pool)  # name, the device's own name, and kind
    stacks: Pool = field(default_factory=Pool)  # codes of the callers' lines
    places: Pool = field(default_factory=Pool)  # codes of the pools above, phase, node


@dataclass(frozen=True, slots=True)
class Site:
    """What the launches of one kernel from one call site share."""

    kernel: int  # number in ``Pools.kernels``
    graph: int  # -1 outside of graphs
    call_site: int  # ordinal in its graph, or -1
    is_eager: bool
    places: tuple[int, ...]  # its parts, as numbers in ``Pools.places``


@dataclass(frozen=True, slots=True)
class Sites:
    """The distinct sites of all ranks, and the site of each launch."""

    sites: tuple[Site, ...]  # by first launch
    of_launch: tuple[Ints, ...]  # by rank; -1 outside of steps


def sites_of(
    analyses: Sequence[Analysis], kernels: Pool, graphs: Sequence[Ints], places: Sequence[Codes]
) -> Sites:
    """Return the launches of the profiled steps by site; ``kernels`` numbers their kernels."""
    named, pool, columns = _kernels_of(analyses), Pool(), []
    for analysis, own, of_graph, of_place in zip(analyses, named, graphs, places, strict=True):
        columns.append(_of_launch(analysis, own, kernels, of_graph, of_place, pool))
    return Sites(tuple(Site(*each) for each in pool.values()), tuple(columns))


def _kernels_of(analyses: Sequence[Analysis]) -> list[_Kernels]:
    """Return the kernels of each rank; beyond ``MAX_KERNELS`` the smallest share one name."""
    every = [kernel_names(analysis) for analysis in analyses]
    times = sum_by_name(
        pair
        for analysis, (codes, names) in zip(analyses, every, strict=True)
        for pair in zip(names, _times(analysis, codes, len(names)), strict=True)
    )
    rest = sorted(times, key=lambda name: -times[name])[MAX_KERNELS:]
    renamed = dict.fromkeys(rest, (f"({len(rest):,} smaller kernels)", "", "several"))
    return [(codes, [renamed.get(name, name) for name in names]) for codes, names in every]


def _times(analysis: Analysis, codes: Ints, size: int) -> list[int]:
    within = analysis.launches.in_steps
    times: list[int] = sum_by(codes[within], analysis.launches.duration_ns[within], size).tolist()
    return times


def _of_launch(
    analysis: Analysis,
    own_kernels: _Kernels,
    kernels: Pool,
    of_graph: Ints,
    of_place: Codes,
    pool: Pool,
) -> Ints:
    """Return the site of each launch, -1 outside of steps."""
    within = np.flatnonzero(analysis.launches.in_steps)
    kernel_codes, names = own_kernels
    starts = share_offsets(analysis)
    own = of_place[analysis.shares.place]
    columns = [column[within] for column in (kernel_codes, *_identity(analysis, of_graph))]
    firsts, group = _in_order(numbered([*columns, *_place_runs(starts, own, within)]))
    numbers = np.empty(len(firsts), np.int64)
    for at, first in enumerate(firsts):
        name, graph, call_site, is_eager = (int(column[first]) for column in columns)
        run = own[starts[within[first]] : starts[within[first] + 1]]
        site = (graph, call_site, bool(is_eager), tuple(run.tolist()))
        numbers[at] = pool.code((kernels.code(names[name]), *site))
    sites = np.full(len(analysis.launches), -1, np.int64)
    sites[within] = numbers[group]
    return sites


def _identity(analysis: Analysis, of_graph: Ints) -> tuple[Ints, Ints, Ints]:
    launches = analysis.launches
    graph = np.append(of_graph, -1)[np.ma.filled(launches.graph, -1)]
    site: Ints = np.ma.filled(launches.call_site, -1).astype(np.int64)
    return graph, site, np.asarray(launches.scope.where(Scope.EAGER)).astype(np.int64)


def _place_runs(starts: Ints, places: Codes, launches: Ints) -> tuple[Ints, Ints]:
    """Number the places of launches: equal for the same places in the same order.

    Launches with as many parts go through as many rounds, so their numbers are comparable.
    """
    first, count = starts[launches], np.diff(starts)[launches]
    run: Ints = np.zeros(len(launches), np.int64)
    for at in range(int(count.max(initial=0))):
        longer = np.flatnonzero(count > at)
        run[longer] = numbered([run[longer], places[first[longer] + at]])
    return count, run


def _in_order(groups: Ints) -> tuple[list[int], Ints]:
    """Return each group's first row, in row order, and each row's group in that order."""
    firsts, inverse = np.unique(groups, return_index=True, return_inverse=True)[1:]
    order = np.argsort(firsts)
    at = np.empty_like(order)
    at[order] = np.arange(len(order))
    return firsts[order].tolist(), at[inverse]
