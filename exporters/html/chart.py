"""Owns the picture of the steps: a column for each, as high as its wall time, idle time on top."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from statistics import median

from profiler_ext.exporters.display_text import percent_text, time_text
from profiler_ext.exporters.html.steps import StepColumn
from profiler_ext.records import Phase

_HEIGHT = 1000
_GAP = 0.12  # of a column's width, between columns
_KINDS = (*map(str, Phase), "idle")


def chart(rank: int, columns: Sequence[StepColumn], most_ns: int) -> str:
    """Return the columns as a drawing, with the words that say what is in it.

    Args:
        rank: the rank, by which the page's scripts find it.
        columns: its steps.
        most_ns: the wall time that fills the height.
    """
    paths = "".join(_paths(columns, most_ns))
    return (
        f'<p>{_summary_text(columns)}</p><div class="chart" data-rank="{rank}" '
        f'style="--columns:{len(columns)}">'
        f'<span class="most quiet">{time_text(most_ns)}</span>'
        f'<svg role="img" aria-label="{escape(_summary_text(columns))}" preserveAspectRatio="none" '
        f'viewBox="0 0 {len(columns)} {_HEIGHT}">{paths}</svg>'
        f'<p class="ends quiet"><span>step {columns[0].first}</span>'
        f"<span>{_last_step(columns)}</span></p>"
        '<p class="about quiet" role="status"></p></div>'
    )


def parts_of(column: StepColumn) -> tuple[float, ...]:
    """Return a column's wall time by phase, and its idle time.

    Launches that overlap count each in their phase, so phases share the busy time as their
    device time is to each other.

    Args:
        column: the column.
    """
    device = sum(column.phases_ns)
    scale = column.busy_ns / device if device else 0
    return *(time * scale for time in column.phases_ns), column.wall_ns - column.busy_ns


def device_times_of(column: StepColumn) -> tuple[int, ...]:
    """Return a column's device time by phase, as every table sums it, and its idle time.

    Args:
        column: the column.
    """
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
            yield f'<path class="{kind}" d="{"".join(drawn)}"/>'
    yield "".join(_whiskers(columns, most_ns))
    yield '<path class="chosen"/>'


def _rectangle(at: int, bottom: float, height: float) -> str:
    width = 1 - _GAP
    return f"M{at + _GAP / 2:.2f} {bottom:.1f}h{width:.2f}v-{height:.1f}h-{width:.2f}z"


def _whiskers(columns: Sequence[StepColumn], most_ns: int) -> Iterator[str]:
    """Yield the span from the least to the most wall time, where a column is several steps."""
    ends = [(at, min(c.walls_ns), max(c.walls_ns)) for at, c in enumerate(columns)]
    spans = [(at, least, most) for at, least, most in ends if most > least]
    drawn = (
        f"M{at + 0.5} {_HEIGHT * (1 - least / most_ns):.1f}V{_HEIGHT * (1 - most / most_ns):.1f}"
        for at, least, most in spans
    )
    if spans:
        yield f'<path class="span" d="{"".join(drawn)}"/>'


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


def _last_step(columns: Sequence[StepColumn]) -> str:
    return f"step {columns[-1].last}" if len(columns) > 1 else ""
