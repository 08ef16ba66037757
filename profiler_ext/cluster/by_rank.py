"""Each rank's own tables for further processing: Dask frames, and Parquet files by rank.

Workers make both from the files; times are on the job's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from profiler_ext.cluster import engine, listing, reading, records, tables
from profiler_ext.cluster.job import Job
from profiler_ext.errors import MissingExtraError, OutputError
from profiler_ext.exporters import extras, table_kinds
from profiler_ext.exporters.tables import Table, write_parquet
from profiler_ext.kineto.source import shown

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

TABLES = ("by_line", *(kind.name for kind in table_kinds.WRITTEN))  # those that are written by rank


@dataclass(frozen=True, slots=True)
class RankSource:
    """Where a rank's tables come from."""

    file: records.RankFile
    facts: records.RankFacts
    clock_offset_ns: int  # zero of its clock less that of the job's


def sources(job: Job) -> list[RankSource]:
    """Return the sources of a job's ranks."""
    zero_ns = job.ranks[0].base_ns
    return [
        RankSource(job.file_of(at), facts, facts.base_ns + clock.shift_ns - zero_ns)
        for at, (facts, clock) in enumerate(zip(job.ranks, job.clocks, strict=True))
    ]


def rank_table(source: RankSource, name: str) -> pd.DataFrame:
    """Return a rank's own table, with its rank and host."""
    session = reading.session_of(source.file)
    table = table_kinds.table_named(name).make(session.analysis)
    return _with_clock(table, source).to_pandas()


def dask_table(job: Job, name: str) -> Any:
    """Return each rank's own table as one Dask frame, a partition a rank.

    Only the first rank is read here, for the columns.
    """
    extras.CLUSTER.require("a Dask frame")
    import dask.dataframe

    every = sources(job)
    like = rank_table(every[0], name).head(0)
    return dask.dataframe.from_map(rank_table, every, name=name, meta=like)


def write_by_rank(
    job: Job,
    place: str,
    client: Client,
    progress: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> list[str]:
    """Write the tables of each rank as ``TABLE/rank_N.parquet``; returns the folders.

    The place is a folder, or a URL that fsspec takes, which every worker can write.
    """
    work, every = engine.Work(client), sources(job)
    futures = work.held(_RankWriter(place), every)
    for done, (_, outcome) in enumerate(work.results(futures), 1):
        if isinstance(outcome, BaseException):
            raise outcome
        progress("ranks written", done, len(every))
    return [_join_url(place, name) for name in TABLES]


@dataclass(frozen=True, slots=True)
class _RankWriter:
    """Writes the tables of a rank; runs on a worker."""

    place: str

    def __call__(self, source: RankSource) -> int:
        session = reading.session_of(source.file)
        for name in TABLES:
            table = _with_clock(table_kinds.table_named(name).make(session.analysis), source)
            _write(table, _join_url(self.place, name), f"rank_{source.facts.rank}.parquet")
        return source.facts.rank


def _with_clock(table: Table, source: RankSource) -> Table:
    if "start_ns" in table:
        start = table["start_ns"]
        moved = replace(start, data=start.data + np.int64(source.clock_offset_ns))
        table = table.with_columns({"start_ns": moved})
    return tables.with_rank(table, source.facts)


def _join_url(place: str, name: str) -> str:
    return f"{place.rstrip('/')}/{name}"


def _write(table: Table, folder: str, name: str) -> None:
    if not listing.is_remote(folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_parquet(table, Path(folder) / name)
        return
    try:
        with listing.open_file(f"{folder}/{name}", "wb") as file:
            file.write(table.to_pandas().to_parquet(None, engine="pyarrow", index=False))
    except MissingExtraError:
        raise
    except Exception as error:  # each file system has errors of its own
        raise OutputError(
            f"cannot write {shown(folder)}: {listing.error_line(error)}; "
            "give a URL that every worker can write"
        ) from error
