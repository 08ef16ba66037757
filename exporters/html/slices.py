"""The filters of report.html: ranks and steps, their sums, and their selectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiler_ext.exporters.html.elements import quiet, tag, text
from profiler_ext.exporters.html.sites import Sites
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Ints
from profiler_ext.records.share_sums import share_offsets, sum_by
from profiler_ext.records.step_kinds import kinds_of_steps, of_usual_kind

MAX_RANKS = 8
MAX_STEPS = 32
_MIN_STEPS = 4
_MAX_NUMBERS = 200_000


def rank_number(analysis: Analysis) -> int:
    """Return the rank of an analysis."""
    return analysis.recording.settings.rank


def step_without_communication_ns(analysis: Analysis) -> float:
    """Return a step's mean wall time without exposed communication.

    Ranks that communicate take as long as the slowest, so wall time does not tell them apart.
    """
    wall = sum(step.wall_ns for step in analysis.steps)
    in_steps = analysis.launches.in_steps[analysis.communication.launch]
    exposed = int(analysis.communication.exposed_ns[in_steps].sum())
    return (wall - exposed) / max(len(analysis.steps), 1)


def selectable_ranks(analyses: Sequence[Analysis]) -> dict[int, str]:
    """Return the selectable ranks; the slowest, median and fastest are labelled."""
    times = {
        rank_number(analysis): step_without_communication_ns(analysis) for analysis in analyses
    }
    return _select_notable(times, MAX_RANKS)


def selectable_steps(analyses: Sequence[Analysis], numbers: int) -> dict[int, str]:
    """Return the selectable steps; ``numbers``, what one step adds to the page, limits them."""
    walls: dict[int, int] = {}
    for step in (step for analysis in analyses for step in analysis.steps):
        walls[step.number] = max(walls.get(step.number, 0), step.wall_ns)
    room = _MAX_NUMBERS // max(numbers, 1)
    return _select_notable(walls, min(MAX_STEPS, max(room, _MIN_STEPS)))


def _select_notable(times: Mapping[int, float], most: int) -> dict[int, str]:
    """Keep the slowest, and the median and the fastest where there are too many."""
    ordered = sorted(times, key=lambda key: (-times[key], key))
    names = _extremes(ordered)
    chosen = ordered if len(ordered) <= most else [*ordered[: most - 2], *names]
    return {key: names.get(key, "") for key in sorted(set(chosen))}


def _extremes(ordered: Sequence[int]) -> dict[int, str]:
    """Label the first, the middle and the last."""
    if len(ordered) < 2:
        return {}
    middle = {ordered[len(ordered) // 2]: "median"} if len(ordered) > 2 else {}
    return {**middle, ordered[0]: "slowest", ordered[-1]: "fastest"}


@dataclass(frozen=True, slots=True)
class Slice:
    """One rank or all, one step or all."""

    analyses: tuple[Analysis, ...]  # the ranks that profiled it
    rank: int | None  # ``None``: all
    step: int | None  # ``None``: all

    @property
    def wall_ns(self) -> int:
        """Wall time of its steps, over all its ranks and devices."""
        return sum(
            line.duration_ns
            for analysis in self.analyses
            for line in analysis.breakdown
            if self.step in (None, line.step)
        )

    @property
    def spans(self) -> int:
        """Number of rank steps that it sums."""
        numbers = (step.number for analysis in self.analyses for step in analysis.steps)
        return sum(self.step in (None, number) for number in numbers)


@dataclass(frozen=True, slots=True)
class Choices:
    """What the page can be filtered to, and how much was left out."""

    slices: tuple[Slice, ...]  # the first is the whole
    ranks: Mapping[int, str]  # rank to label
    steps: Mapping[int, str]  # step to label
    all_ranks: int  # count, with those left out
    all_steps: int  # count, with those left out


def choices(analyses: Sequence[Analysis], sites: Sites) -> Choices:
    """Return what the page can be filtered to."""
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
            profiled = (a for a in own if step in (None, *(each.number for each in a.steps)))
            # Steps of several kinds have no common mean
            yield Slice(
                tuple(of_usual_kind(a) if step is None else a for a in profiled), rank, step
            )


class Sums:
    """Sums launches and their parts over a slice."""

    def __init__(self, analyses: Sequence[Analysis], sites: Sites) -> None:
        counts = [len(site.places) for site in sites.sites]
        self._offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        pairs = zip(analyses, sites.of_launch, strict=True)
        self._of = {
            rank_number(a): (of_launch, self._parts(a, of_launch)) for a, of_launch in pairs
        }

    def _parts(self, analysis: Analysis, of_launch: Ints) -> Ints:
        """Return the number of each share's part, over all sites."""
        launch = analysis.shares.launch
        within = np.arange(len(launch)) - share_offsets(analysis)[launch]
        parts: Ints = np.append(self._offsets[:-1], 0)[of_launch[launch]] + within
        return parts

    def of(self, chosen: Slice) -> dict[str, Any]:
        """Return the sites that ran in a slice, their launches, and the time of each part."""
        launches = np.zeros(len(self._offsets) - 1, np.int64)
        times = np.zeros(int(self._offsets[-1]), np.int64)
        for analysis in chosen.analyses:
            of_launch, parts = self._of[rank_number(analysis)]
            ran = analysis.launches.in_steps
            if chosen.step is not None:
                ran = ran & (np.ma.getdata(analysis.launches.step) == chosen.step)
            launches += np.bincount(of_launch[ran], minlength=len(launches))
            shares = ran[analysis.shares.launch]
            times += sum_by(parts[shares], analysis.shares.duration_ns[shares], len(times))
        there = np.flatnonzero(launches)
        kept = np.repeat(launches > 0, np.diff(self._offsets))
        return {
            "sites": there.tolist(),
            "launches": launches[there].tolist(),
            "times": times[kept].tolist(),
        }


def controls(chosen: Choices) -> str:
    """Return the selectors, and what was left out."""
    parts = (
        _chooser("rank", chosen.ranks, chosen.all_ranks),
        _chooser("step", chosen.steps, chosen.all_steps, _whole_text(chosen)),
        _unit(chosen.slices[0].spans),
        *_left_out("ranks", len(chosen.ranks), chosen.all_ranks),
        *_left_out("steps", len(chosen.steps), chosen.all_steps),
    )
    return "".join(parts)


def _whole_text(chosen: Choices) -> str:
    """Return what no choice of a step stands for: all, or those of the usual kind."""
    first = chosen.slices[0].analyses[0]
    kinds = [each for each in kinds_of_steps(first) if each.steps]
    is_all = len(first.steps) == chosen.all_steps or not kinds
    return "" if is_all else f"{len(first.steps):,} of {kinds[0].kind.label}"


def _chooser(name: str, there: Mapping[int, str], every: int, whole: str = "") -> str:
    if every < 2:
        return ""
    options = {"": whole or f"all {every:,}"} | {
        str(number): f"{number}{f' ({word})' if word else ''}" for number, word in there.items()
    }
    return _select(name, name, options)


def _unit(spans: int) -> str:
    if spans < 2:
        return ""
    return _select("times", "unit", {"mean": "mean of a step", "sum": f"sum of {spans:,} steps"})


def _select(label: str, name: str, options: Mapping[str, str]) -> str:
    made = (tag("option", text(shown), value=value) for value, shown in options.items())
    return tag("label", f"{label} ", tag("select", *made, id=name)) + " "


def _left_out(name: str, shown: int, every: int) -> Iterable[str]:
    if shown < every:
        left = f"{shown} of {every:,} {name} can be chosen: the slowest, the median, the fastest"
        yield quiet(left, "span") + " "
