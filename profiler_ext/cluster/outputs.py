"""Owns what a job is written as: its page, and for Perfetto the ranks that one picks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.cluster.job import Job
from profiler_ext.cluster.page import export_page
from profiler_ext.cluster.reading import session_of
from profiler_ext.errors import UsageError
from profiler_ext.exporters.formats import format_named
from profiler_ext.sessions.merging import MergedSession

if TYPE_CHECKING:
    from profiler_ext.exporters.formats import Roots

PAGE, TRACE = "report.html", "trace.pftrace"


def picked(job: Job, ranks: Sequence[int], roots: Roots = ()) -> MergedSession:
    """Return some ranks of a job as merged sessions, on the job's clock; they are read here.

    Args:
        job: the job.
        ranks: which.
        roots: folders from which source may be shown.

    Raises:
        UsageError: One is not there, or none is asked for.
        TraceError: A file cannot be read any more.
    """
    if not ranks:
        raise UsageError("no rank is picked; give some, --ranks 0,7")
    chosen = job.indices(sorted(set(ranks)))
    sessions = [session_of(job.file_of(at), tuple(map(str, roots))) for at in chosen]
    return MergedSession(sessions, clocks=[job.clocks[at] for at in chosen])


def write_job(job: Job, folder: Path, ranks: Sequence[int] = ()) -> list[Path]:
    """Write a job's page, and of some ranks a trace for Perfetto; returns the files.

    Args:
        job: the job.
        folder: where to; it is made where it is not there.
        ranks: the ranks of the trace; none for no trace.

    Raises:
        UsageError: A rank is not there.
        TraceError: A file cannot be read any more.
        OutputError: A file cannot be written.
    """
    job.indices(list(ranks))
    folder.mkdir(parents=True, exist_ok=True)
    written = [export_page(job, folder / PAGE)]
    if ranks:
        written.append(picked(job, ranks).export_as(format_named("perfetto"), folder / TRACE))
    return written
