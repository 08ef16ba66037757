"""Owns single launches on the page: how those of a kernel or site spread, and the slowest.

Of each kernel the slowest few stand for all, with a histogram, so that the page stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiler_ext.exporters.html.choices import rank_of
from profiler_ext.exporters.html.pools import Pool
from profiler_ext.exporters.html.sites import Sites
from profiler_ext.kineto.launch_shapes import LaunchShapes, launch_shapes
from profiler_ext.records import Analysis, Ints
from profiler_ext.rooflines.rooflines import MaskedFloats, rooflines

MOST_DETAILED = 300
SLOWEST = 5
BINS = 16
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class _Every:
    """The launches of the steps of all ranks.

    Attributes:
        rank: index of its rank's analysis.
        launch: its row there.
        site: its site.
        kernel: number of its kernel.
        duration_ns: how long it was.
    """

    rank: Ints
    launch: Ints
    site: Ints
    kernel: Ints
    duration_ns: Ints


@dataclass(frozen=True, slots=True)
class _Groups:
    """Launches by a number, each group from the shortest to the longest.

    Attributes:
        order: the launches, group by group.
        numbers: the number of each group.
        first: where each begins in the order.
        end: where it ends.
    """

    order: Ints
    numbers: Ints
    first: Ints
    end: Ints


def single_launches(analyses: Sequence[Analysis], sites: Sites) -> dict[str, Any]:
    """Return how launches spread, over all steps and ranks, and the slowest of each kernel.

    Args:
        analyses: one for each rank.
        sites: their sites.

    Returns:
        ``kernels``: number, least, median and largest time, counts of a histogram; ``sites``: the
        same without counts, and how the largest was launched; ``slowest``: kernel, rank, step,
        nanoseconds into the step, time, site, GB/s, how it was launched; ``shapes`` says that.
    """
    every = _every(analyses, sites)
    by_kernel, by_site = _groups(every.kernel, every), _groups(every.site, every)
    detailed, shapes = _largest(by_kernel, every), Pool()
    slowest = np.concatenate([_NONE, *(_slowest(by_kernel, at) for at in detailed)])
    counts = {at: _counts(by_kernel, at, every) for at in detailed}
    of_slowest = [shapes.code(words) for words in _shapes(analyses, every, slowest)]
    longest = by_site.order[by_site.end - 1]
    of_site = [shapes.code(words) for words in _shapes(analyses, every, longest)]
    rows = [_row(analyses, every, at) for at in slowest.tolist()]
    each = zip(rows, _rates(analyses, every, slowest), of_slowest, strict=True)
    spreads = (_spreads(by_kernel, every), zip(_spreads(by_site, every), of_site, strict=True))
    return {
        "kernels": [(*spread, counts.get(at, [])) for at, spread in enumerate(spreads[0])],
        "sites": [(*spread, shape) for spread, shape in spreads[1]],
        "slowest": [(*row, rate, shape) for row, rate, shape in each],
        "shapes": shapes.values(),
    }


def _every(analyses: Sequence[Analysis], sites: Sites) -> _Every:
    kernel_of = np.array([site.kernel for site in sites.sites], np.int64)
    launches = [np.flatnonzero(of_launch >= 0) for of_launch in sites.of_launch]
    rank = np.repeat(np.arange(len(analyses)), [len(each) for each in launches])
    site = np.concatenate([c[r] for c, r in zip(sites.of_launch, launches, strict=True)])
    durations = [a.launches.duration_ns[r] for a, r in zip(analyses, launches, strict=True)]
    launch, duration = np.concatenate(launches), np.concatenate(durations)
    return _Every(rank, launch, site, kernel_of[site], duration)


def _groups(numbers: Ints, every: _Every) -> _Groups:
    order = np.lexsort((every.duration_ns, numbers))
    distinct, first, count = np.unique(numbers[order], return_index=True, return_counts=True)
    return _Groups(order, distinct, first, first + count)


def _spreads(groups: _Groups, every: _Every) -> Iterable[tuple[int, int, int, int]]:
    """Return the number of each group, and its least, median and largest time."""
    times = every.duration_ns[groups.order]
    middle = times[(groups.first + groups.end - 1) // 2] + times[(groups.first + groups.end) // 2]
    columns = (groups.numbers, times[groups.first], middle // 2, times[groups.end - 1])
    return zip(*(column.tolist() for column in columns), strict=True)


def _largest(groups: _Groups, every: _Every) -> list[int]:
    """Return the groups that have most time, as many as are told in detail."""
    if not len(every.site):
        return []
    sums = np.add.reduceat(every.duration_ns[groups.order], groups.first)
    largest: list[int] = np.argsort(-sums, kind="stable")[:MOST_DETAILED].tolist()
    return largest


def _slowest(groups: _Groups, at: int) -> Ints:
    first = max(groups.first[at], groups.end[at] - SLOWEST)
    slowest: Ints = groups.order[first : groups.end[at]][::-1]
    return slowest


def _counts(groups: _Groups, at: int, every: _Every) -> list[int]:
    """Return a histogram of a group's times, from the least to the largest, by their ratio."""
    times = every.duration_ns[groups.order[groups.first[at] : groups.end[at]]]
    if times[0] == times[-1]:
        return [len(times)]
    counts: list[int] = np.histogram(np.log(np.maximum(times, 1)), BINS)[0].tolist()
    return counts


def _row(analyses: Sequence[Analysis], every: _Every, at: int) -> tuple[int, ...]:
    analysis, launch = analyses[every.rank[at]], every.launch[at]
    number = int(analysis.launches.step[launch])
    began = next(step.start_ns for step in analysis.steps if step.number == number)
    into_ns = int(analysis.launches.start_ns[launch]) - began
    own = (int(every.duration_ns[at]), int(every.site[at]))
    return int(every.kernel[at]), rank_of(analysis), number, into_ns, *own


def _rates(analyses: Sequence[Analysis], every: _Every, chosen: Ints) -> list[int | None]:
    """Return GB/s of some launches, where they are known."""
    found: list[int | None] = [None] * len(chosen)
    for index, analysis in enumerate(analyses):
        here = np.flatnonzero(every.rank[chosen] == index)
        rates: MaskedFloats = rooflines(analysis).gb_per_s[every.launch[chosen[here]]]
        for at, rate in zip(here.tolist(), rates.tolist(), strict=True):
            found[at] = None if rate is None else round(rate)
    return found


def _shapes(analyses: Sequence[Analysis], every: _Every, chosen: Ints) -> list[str]:
    """Return in words how some launches were launched."""
    found = [""] * len(chosen)
    for index, analysis in enumerate(analyses):
        here = np.flatnonzero(every.rank[chosen] == index)
        events = analysis.launches.event[every.launch[chosen[here]]]
        told = launch_shapes(analysis.recording.trace, events)
        for row, at in enumerate(here.tolist()):
            found[at] = ", ".join(_words(told, row))
    return found


def _words(told: LaunchShapes, row: int) -> Iterator[str]:
    sizes = (("grid", told.grid), ("block", told.block))
    yield from (f"{n} {c.strings[c.codes[row]]}" for n, c in sizes if c.strings[c.codes[row]])
    numbers = (
        (told.registers_per_thread, " registers a thread"),
        (told.shared_memory_bytes, " B shared memory"),
        (told.occupancy_percent, "% occupancy"),
    )
    yield from (f"{column[row]}{words}" for column, words in numbers if column[row])
