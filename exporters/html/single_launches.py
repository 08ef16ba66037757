"""Single launches on the page: distribution per kernel or site, and the slowest.

Only the slowest few of each kernel are kept, with a histogram, so that the page stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiler_ext.exporters.html.sites import Pool, Sites
from profiler_ext.exporters.html.slices import rank_number
from profiler_ext.kineto.launch_shapes import LaunchShapes, launch_shapes
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Ints
from profiler_ext.rooflines.rooflines import MaskedFloats, rooflines

MAX_DETAILED_KERNELS = 300
SLOWEST = 5
BINS = 16
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class _LaunchColumns:
    """The launches in profiled steps, of all ranks."""

    rank: Ints  # index of its rank's analysis
    launch: Ints  # row of its ``Launches``
    site: Ints
    kernel: Ints  # kernel number
    duration_ns: Ints


@dataclass(frozen=True, slots=True)
class _Groups:
    """Launches grouped by a number, each group from shortest to longest."""

    order: Ints  # launches, group by group
    numbers: Ints  # each group's number
    first: Ints  # start in ``order``
    end: Ints


def single_launches(analyses: Sequence[Analysis], sites: Sites) -> dict[str, Any]:
    """Return how launch times are distributed, over all steps and ranks, and the slowest ones.

    ``kernels``: number, min, median and max time, histogram counts; ``sites``: the same without
    counts, and the max's launch shape; ``slowest``: kernel, rank, step, ns into the step, time,
    site, GB/s, launch shape; ``shapes``: the texts of launch shapes.
    """
    table = _launch_columns(analyses, sites)
    by_kernel, by_site = _groups(table.kernel, table), _groups(table.site, table)
    detailed, shapes = _largest(by_kernel, table), Pool()
    slowest = np.concatenate([_NONE, *(_slowest(by_kernel, at) for at in detailed)])
    counts = {at: _counts(by_kernel, at, table) for at in detailed}
    of_slowest = [shapes.code(words) for words in _shapes(analyses, table, slowest)]
    longest = by_site.order[by_site.end - 1]
    of_site = [shapes.code(words) for words in _shapes(analyses, table, longest)]
    rows = [_row(analyses, table, at) for at in slowest.tolist()]
    each = zip(rows, _rates(analyses, table, slowest), of_slowest, strict=True)
    spreads = (_spreads(by_kernel, table), zip(_spreads(by_site, table), of_site, strict=True))
    return {
        "kernels": [(*spread, counts.get(at, [])) for at, spread in enumerate(spreads[0])],
        "sites": [(*spread, shape) for spread, shape in spreads[1]],
        "slowest": [(*row, rate, shape) for row, rate, shape in each],
        "shapes": shapes.values(),
    }


def _launch_columns(analyses: Sequence[Analysis], sites: Sites) -> _LaunchColumns:
    kernel_of = np.array([site.kernel for site in sites.sites], np.int64)
    launches = [np.flatnonzero(of_launch >= 0) for of_launch in sites.of_launch]
    rank = np.repeat(np.arange(len(analyses)), [len(each) for each in launches])
    site = np.concatenate([c[r] for c, r in zip(sites.of_launch, launches, strict=True)])
    durations = [a.launches.duration_ns[r] for a, r in zip(analyses, launches, strict=True)]
    launch, duration = np.concatenate(launches), np.concatenate(durations)
    return _LaunchColumns(rank, launch, site, kernel_of[site], duration)


def _groups(numbers: Ints, table: _LaunchColumns) -> _Groups:
    order = np.lexsort((table.duration_ns, numbers))
    distinct, first, count = np.unique(numbers[order], return_index=True, return_counts=True)
    return _Groups(order, distinct, first, first + count)


def _spreads(groups: _Groups, table: _LaunchColumns) -> Iterable[tuple[int, int, int, int]]:
    """Return each group's number, and its min, median and max time."""
    times = table.duration_ns[groups.order]
    middle = times[(groups.first + groups.end - 1) // 2] + times[(groups.first + groups.end) // 2]
    columns = (groups.numbers, times[groups.first], middle // 2, times[groups.end - 1])
    return zip(*(column.tolist() for column in columns), strict=True)


def _largest(groups: _Groups, table: _LaunchColumns) -> list[int]:
    """Return the groups with most time, up to ``MAX_DETAILED_KERNELS``."""
    if not len(table.site):
        return []
    sums = np.add.reduceat(table.duration_ns[groups.order], groups.first)
    largest: list[int] = np.argsort(-sums, kind="stable")[:MAX_DETAILED_KERNELS].tolist()
    return largest


def _slowest(groups: _Groups, at: int) -> Ints:
    first = max(groups.first[at], groups.end[at] - SLOWEST)
    slowest: Ints = groups.order[first : groups.end[at]][::-1]
    return slowest


def _counts(groups: _Groups, at: int, table: _LaunchColumns) -> list[int]:
    """Return a histogram of a group's times, on a log scale."""
    times = table.duration_ns[groups.order[groups.first[at] : groups.end[at]]]
    if times[0] == times[-1]:
        return [len(times)]
    counts: list[int] = np.histogram(np.log(np.maximum(times, 1)), BINS)[0].tolist()
    return counts


def _row(analyses: Sequence[Analysis], table: _LaunchColumns, at: int) -> tuple[int, ...]:
    analysis, launch = analyses[table.rank[at]], table.launch[at]
    number = int(analysis.launches.step[launch])
    began = next(step.start_ns for step in analysis.steps if step.number == number)
    into_ns = int(analysis.launches.start_ns[launch]) - began
    own = (int(table.duration_ns[at]), int(table.site[at]))
    return int(table.kernel[at]), rank_number(analysis), number, into_ns, *own


def _rates(analyses: Sequence[Analysis], table: _LaunchColumns, chosen: Ints) -> list[int | None]:
    """Return the GB/s of launches, where known."""
    cells: list[int | None] = [None] * len(chosen)
    for index, analysis in enumerate(analyses):
        here = np.flatnonzero(table.rank[chosen] == index)
        rates: MaskedFloats = rooflines(analysis).gb_per_s[table.launch[chosen[here]]]
        for at, rate in zip(here.tolist(), rates.tolist(), strict=True):
            cells[at] = None if rate is None else round(rate)
    return cells


def _shapes(analyses: Sequence[Analysis], table: _LaunchColumns, chosen: Ints) -> list[str]:
    """Return the launch shapes of launches as text."""
    cells = [""] * len(chosen)
    for index, analysis in enumerate(analyses):
        here = np.flatnonzero(table.rank[chosen] == index)
        events = analysis.launches.event[table.launch[chosen[here]]]
        launch_shape = launch_shapes(analysis.recording.trace, events)
        for row, at in enumerate(here.tolist()):
            cells[at] = ", ".join(_shape_texts(launch_shape, row))
    return cells


def _shape_texts(launch_shape: LaunchShapes, row: int) -> Iterator[str]:
    sizes = (("grid", launch_shape.grid), ("block", launch_shape.block))
    yield from (f"{n} {c.strings[c.codes[row]]}" for n, c in sizes if c.strings[c.codes[row]])
    numbers = (
        (launch_shape.registers_per_thread, " registers a thread"),
        (launch_shape.shared_memory_bytes, " B shared memory"),
        (launch_shape.occupancy_percent, "% occupancy"),
    )
    yield from (f"{column[row]}{words}" for column, words in numbers if column[row])
