"""The files of a job: its HTML page, and a Perfetto trace of chosen ranks.

The page has no script and fetches nothing: tables fold as the browser folds them. Each host is a
row of cells, one a rank, darker the later the rank is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from profiler_ext.cluster import reading, stragglers
from profiler_ext.cluster.job import Job
from profiler_ext.cluster.views import VIEWS, View, heading, sentences, settings_of
from profiler_ext.errors import UsageError
from profiler_ext.exporters.formats import format_named
from profiler_ext.exporters.html.elements import (
    Head,
    TableRow,
    folding_section,
    quiet,
    table,
    tag,
    text,
)
from profiler_ext.exporters.html.template import render_page, resource, write_page
from profiler_ext.exporters.views import formatting, summary
from profiler_ext.records.recording import Settings
from profiler_ext.sessions.merging import MergedSession

if TYPE_CHECKING:
    from profiler_ext.exporters.formats import Roots


_MAX_ROWS = 2_000
_OPEN = ("straggler", "line", "group")
_WIDE_ONLY = 4  # columns from this order on are shown in a wide window only
PAGE, TRACE = "report.html", "trace.pftrace"


def export_page(job: Job, path: Path) -> Path:
    """Write a job as one self-contained page; returns the file."""
    return write_page(path, job_page(job))


def job_page(job: Job) -> str:
    """Return a job as a page; names are escaped."""
    settings = settings_of(job)
    return render_page(
        "job.html",
        title=text(f"profiler-ext: {len(job.ranks):,} ranks"),
        style=resource("report.css") + resource("job.css"),
        heading=text(heading(job)),
        links="".join(tag("a", text(view.table), href=f"#{view.by}") for view in VIEWS),
        notes="".join(tag("p", text(note)) for note in sentences(job)),
        cells=_cells(job),
        tables="".join(_section(job, view, settings) for view in VIEWS),
    )


def _section(job: Job, view: View, settings: Settings) -> str:
    rows = summary.records(job.columns(view.table))
    body = _table(view, rows, settings) if rows else tag("p", text(view.empty))
    is_open = view.by in _OPEN or (view.by == "gap" and bool(rows))
    return folding_section(view.by, view.title, f"{len(rows):,}", body, is_open)


def _table(view: View, rows: Sequence[Any], settings: Settings) -> str:
    heads = [Head(column.name, _kind(column.order)) for column in view.columns]
    lines = (
        TableRow([text(column.cell(row, settings)) for column in view.columns])
        for row in rows[:_MAX_ROWS]
    )
    left = len(rows) - _MAX_ROWS
    more = quiet(f"and {left:,} more") if left > 0 else ""
    return tag("div", table(heads, lines), class_="wide") + more


def _kind(order: int | None) -> str:
    if order is None:
        return "what"
    return "number wide-only" if order >= _WIDE_ONLY else "number"


def _cells(job: Job) -> str:
    behind = np.nan_to_num(job.rank_stats.delay_ns)
    most = max(float(behind.max(initial=0)), 0.01 * job.rank_stats.step_ns, 1.0)
    rows = []
    for host, ranks in stragglers.ranks_by_host(job.rank_stats.hosts).items():
        shades = ((rank, np.clip(behind[rank] / most, 0, 1)) for rank in ranks)
        cells = (
            tag("i", style=f"--behind:{shade:.3f}", title=_title(job, rank))
            for rank, shade in shades
        )
        rows.append(tag("div", tag("span", text(host or "(unknown)")), *cells, class_="host"))
    return "".join(rows)


def _title(job: Job, rank: int) -> str:
    delay_ns = max(float(job.rank_stats.delay_ns[rank]), 0)
    if np.isnan(job.rank_stats.delay_ns[rank]):
        return f"rank {job.ranks[rank].rank}: not known how far behind"
    return f"rank {job.ranks[rank].rank}: {formatting.time_text(delay_ns)} behind in a step"


def picked(job: Job, ranks: Sequence[int], roots: Roots = ()) -> MergedSession:
    """Return some ranks of a job as merged sessions, on the job's clock; reads them here."""
    if not ranks:
        raise UsageError("no rank is picked; give some, --ranks 0,7")
    chosen = job.indices(sorted(set(ranks)))
    sessions = [reading.session_of(job.file_of(at), tuple(map(str, roots))) for at in chosen]
    return MergedSession(sessions, clocks=[job.clocks[at] for at in chosen])


def write_job(job: Job, folder: Path, ranks: Sequence[int] = ()) -> list[Path]:
    """Write a job's page, and a Perfetto trace of some ranks; returns the files."""
    job.indices(list(ranks))
    folder.mkdir(parents=True, exist_ok=True)
    written = [export_page(job, folder / PAGE)]
    if ranks:
        written.append(picked(job, ranks).export_as(format_named("perfetto"), folder / TRACE))
    return written
