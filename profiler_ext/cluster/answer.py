"""Owns a job as an answer for programs."""

from __future__ import annotations

from profiler_ext.cluster.job import TABLES, Job
from profiler_ext.cluster.views import sentences, view_by
from profiler_ext.exporters.answers.documents import JobAnswer
from profiler_ext.exporters.answers.parts import Cut
from profiler_ext.exporters.table_texts import first_rows, records


def job_answer(job: Job, place: str, by: str | None = None, top: int | None = None) -> JobAnswer:
    """Return a job, or one table of it, as an answer.

    Args:
        job: the job.
        place: what was read.
        by: which table; ``None`` for all that tell how ranks differ.
        top: so many rows of each at most; ``None`` for all.

    Raises:
        UsageError: ``top`` is less than 1.
    """
    names = [each for each in TABLES if each != "gaps"] if by is None else [view_by(by).table]
    made = {name: job.table(name) for name in names}
    return JobAnswer(
        place=place,
        rank_count=len(job.ranks),
        tables={name: records(first_rows(table, top)) for name, table in made.items()},
        missing=records(job.table("gaps")),
        notes=sentences(job),
        cuts=[
            Cut(where=f"tables.{name}", kept=top, of=len(table), unit="items", because="top")
            for name, table in made.items()
            if top is not None and len(table) > top
        ],
    )
