"""Steps as columns of a chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from profiler_ext.exporters.html.elements import tag
from profiler_ext.exporters.html.slices import rank_number, selectable_ranks
from profiler_ext.exporters.views.formatting import percent_text, time_text
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Ints
from profiler_ext.records.share_sums import KeyedShares, profiled_shares
from profiler_ext.records.vocabulary import Phase, Scope

MAX_COLUMNS = 300
_HEIGHT = 1000
_GAP = 0.12  # of a column's width, between columns
_KINDS = (*map(str, Phase), "idle")


@dataclass(frozen=True, slots=True)
class StepColumn:
    """A step, or the mean of consecutive steps."""

    first: int  # step number
    last: int  # step number
    walls_ns: tuple[int, ...]  # of each step, summed over devices
    busy_ns: int  # mean
    phases_ns: tuple[int, ...]  # mean device time by phase; overlapping launches add up

    @property
    def steps(self) -> int:
        """Number of steps; numbers may be missing between the first and the last."""
        return len(self.walls_ns)

    @property
    def wall_ns(self) -> int:
        """Mean wall time."""
        return round(sum(self.walls_ns) / self.steps)


def step_columns(analyses: Sequence[Analysis]) -> dict[int, list[StepColumn]]:
    """Return the columns of each selectable rank."""
    shown = selectable_ranks(analyses)
    return {rank_number(each): columns_of(each) for each in analyses if rank_number(each) in shown}


def columns_of(analysis: Analysis) -> list[StepColumn]:
    """Return a column per step, or per equally many steps beyond ``MAX_COLUMNS``."""
    numbers = list(dict.fromkeys(step.number for step in analysis.steps))
    if not numbers:
        return []
    times = _times(analysis, numbers)
    together = -(-len(numbers) // MAX_COLUMNS)
    starts = range(0, len(numbers), together)
    return [_column(numbers[at : at + together], times[at : at + together]) for at in starts]


def _column(numbers: Sequence[int], times: Ints) -> StepColumn:
    _, busy, *phases = np.rint(times.mean(axis=0)).astype(np.int64).tolist()
    return StepColumn(numbers[0], numbers[-1], tuple(times[:, 0].tolist()), busy, tuple(phases))


def _times(analysis: Analysis, numbers: Sequence[int]) -> Ints:
    """Return each step's wall time, busy time, and device time by phase."""
    rows = {number: row for row, number in enumerate(numbers)}
    times = np.zeros((len(rows), 2), np.int64)
    for line in analysis.breakdown:
        if line.step in rows:
            times[rows[line.step], 0] += line.duration_ns
            times[rows[line.step], 1] += line.duration_ns * (line.scope != Scope.IDLE)
    shares = profiled_shares(analysis)
    step = np.ma.getdata(analysis.launches.step)[analysis.shares.launch[shares]]
    order = np.argsort(numbers)
    row = order[np.searchsorted(np.sort(numbers), step)]
    phases_ns = KeyedShares(analysis, shares, row, len(rows)).phases_ns()
    return np.concatenate((times, phases_ns), axis=1)


def chart(rank: int, columns: Sequence[StepColumn], most_ns: int) -> str:
    """Return the columns as SVG, with a text summary."""
    summary = _summary_text(columns)
    drawing = tag(
        "svg",
        *_paths(columns, most_ns),
        role="img",
        aria_label=summary,
        preserveAspectRatio="none",
        viewBox=f"0 0 {len(columns)} {_HEIGHT}",
    )
    last = f"step {columns[-1].last}" if len(columns) > 1 else ""
    ends = tag("span", f"step {columns[0].first}"), tag("span", last)
    return tag("p", summary) + tag(
        "div",
        tag("span", time_text(most_ns), class_="most quiet"),
        drawing,
        tag("p", *ends, class_="ends quiet"),
        tag("p", class_="about quiet", role="status"),
        class_="chart",
        data_rank=str(rank),
        style=f"--columns:{len(columns)}",
    )


def parts_of(column: StepColumn) -> tuple[float, ...]:
    """Return a column's wall time by phase, and its idle time.

    Overlapping launches count in each phase, so busy time is split in proportion to device time.
    """
    device = sum(column.phases_ns)
    scale = column.busy_ns / device if device else 0
    return *(time * scale for time in column.phases_ns), column.wall_ns - column.busy_ns


def device_times_of(column: StepColumn) -> tuple[int, ...]:
    """Return a column's device time by phase, as in the tables, and its idle time."""
    return *column.phases_ns, column.wall_ns - column.busy_ns


def _paths(columns: Sequence[StepColumn], most_ns: int) -> Iterator[str]:
    edges = [0.0] * len(columns)
    for kind, times in zip(_KINDS, zip(*map(parts_of, columns), strict=True), strict=True):
        drawn = []
        for at, time in enumerate(times):
            if time:
                height = _HEIGHT * time / most_ns
                drawn.append(_rectangle(at, _HEIGHT - edges[at], height))
                edges[at] += height
        if drawn:
            yield tag("path", class_=kind, d="".join(drawn))
    yield "".join(_whiskers(columns, most_ns))
    yield tag("path", class_="chosen")


def _rectangle(at: int, bottom: float, height: float) -> str:
    width = 1 - _GAP
    return f"M{at + _GAP / 2:.2f} {bottom:.1f}h{width:.2f}v-{height:.1f}h-{width:.2f}z"


def _whiskers(columns: Sequence[StepColumn], most_ns: int) -> Iterator[str]:
    """Yield the range of wall times, where a column is several steps."""
    ends = [(at, min(c.walls_ns), max(c.walls_ns)) for at, c in enumerate(columns)]
    spans = [(at, least, most) for at, least, most in ends if most > least]
    drawn = (
        f"M{at + 0.5} {_HEIGHT * (1 - least / most_ns):.1f}V{_HEIGHT * (1 - most / most_ns):.1f}"
        for at, least, most in spans
    )
    if spans:
        yield tag("path", class_="span", d="".join(drawn))


def _summary_text(columns: Sequence[StepColumn]) -> str:
    walls = [wall for column in columns for wall in column.walls_ns]
    slowest = max(columns, key=lambda column: max(column.walls_ns))
    fastest = min(columns, key=lambda column: min(column.walls_ns))
    busy = percent_text(sum(column.busy_ns * column.steps for column in columns), sum(walls))
    together = f", {columns[0].steps} in a column" if len(walls) > len(columns) else ""
    return (
        f"{len(walls):,} steps{together}: median {time_text(median(walls))}; slowest "
        f"{_column_name(slowest)} {time_text(max(walls))}; fastest {_column_name(fastest)} "
        f"{time_text(min(walls))}; device busy {busy}"
    )


def _column_name(column: StepColumn) -> str:
    return f"{column.first}" if column.first == column.last else f"in {column.first}-{column.last}"
