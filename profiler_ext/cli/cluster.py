"""``profiler-ext cluster``: reports on a job of many ranks."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.cli.common import (
    DEFAULT,
    FOLDER,
    Parser,
    add_format,
    console,
    positive_int,
    print_answer,
    print_message,
    write,
)

if TYPE_CHECKING:
    from profiler_ext.cluster import Job

HELP = "analyze all ranks of a job with Dask: stragglers and waits"

_TOP, _PROGRESS_INTERVAL_S = 10, 5.0
_BY = ("straggler", "line", "group", "host", "rank", "clock", "gap")


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    from profiler_ext.exporters.table_kinds import PRINT_FORMATS

    parser.add_argument(
        "place",
        nargs="?",
        default=str(FOLDER),
        metavar="DIR|URL",
        help="folder of the ranks' sessions, or a URL of fsspec: s3://bucket/job, gs://, hdfs://; "
        f"a pattern picks one of several sessions: 'DIR/rank_*/step_001003' {DEFAULT}",
    )
    _add_engine(parser.add_argument_group("Dask"))
    parser.add_argument(
        "--by", choices=_BY, metavar="WHAT", help="one table: %(choices)s (default: an overview)"
    )
    parser.add_argument(
        "--top", type=int, metavar="N", help=f"number of rows (default: {_TOP}, in JSON all)"
    )
    _add_output(parser.add_argument_group("output files"))
    add_format(parser, [each.name for each in PRINT_FORMATS])
    parser.show_examples(
        ("all ranks of a torchrun job", "profiler-ext cluster profile_out"),
        (
            "on a Dask cluster, from S3",
            "profiler-ext cluster s3://runs/7 --scheduler tcp://head:8786",
        ),
        ("a page, and two ranks in Perfetto", "profiler-ext cluster DIR -o all --ranks 0,7"),
    )
    parser.set_defaults(command=_cluster)


def _add_engine(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="Dask scheduler, tcp://host:8786 (default: local processes, which listen on the "
        "loopback address only)",
    )
    group.add_argument(
        "--workers",
        type=positive_int,
        metavar="N",
        help="number of local processes (default: one per core)",
    )
    group.add_argument(
        "--memory",
        type=positive_int,
        metavar="MIB",
        help="memory limit of each local process (default: its share of this machine)",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="write report.html into this folder"
    )
    group.add_argument(
        "--ranks",
        type=_ranks,
        default=[],
        metavar="N,N",
        help="also write trace.pftrace of these ranks, on one clock",
    )
    group.add_argument(
        "--parquet",
        metavar="DIR|URL",
        help="write the tables of each rank there, as TABLE/rank_N.parquet",
    )


def _cluster(options: argparse.Namespace) -> int:
    from profiler_ext.cluster import connected, read_job, write_by_rank, write_job
    from profiler_ext.errors import UsageError

    if options.ranks and options.output is None:
        raise UsageError("--ranks needs -o DIR, which writes their trace")
    if options.scheduler and (options.workers or options.memory):
        raise UsageError(
            "--workers and --memory are for local processes, but --scheduler names a cluster with "
            "its own; leave out either"
        )
    memory_bytes = None if options.memory is None else options.memory << 20
    show_progress = _ProgressLine()
    with (
        _without_last_resort_log(),
        connected(options.scheduler, options.workers, memory_bytes) as client,
    ):
        job = read_job(options.place, client=client, progress=show_progress)
        if options.parquet:
            write_by_rank(job, options.parquet, client, show_progress)
    _print(job, options)
    written = [] if options.output is None else write_job(job, options.output, options.ranks)
    for path in (*map(str, written), *([options.parquet] if options.parquet else ())):
        print_message(f"written to {path}")
    return 0


def _print(job: Job, options: argparse.Namespace) -> None:
    from profiler_ext.cluster.report import job_answer, print_job
    from profiler_ext.cluster.views import view_by
    from profiler_ext.exporters.views.summary import table_text

    if options.format == "json":
        print_answer(job_answer(job, options.place, options.by, options.top), options)
        return
    top = _TOP if options.top is None else options.top
    if options.format == "text":
        print_job(job, console(), options.by, top)
    else:
        table = job.columns(view_by(options.by or "line").table)
        write(table_text(table, options.top, options.format))


@contextmanager
def _without_last_resort_log() -> Iterator[None]:
    """Keep file systems' logs off the screen: a failure is reported as an error."""
    before, logging.lastResort = logging.lastResort, None
    try:
        yield
    finally:
        logging.lastResort = before


class _ProgressLine:
    """Shows progress on standard error, every few seconds."""

    def __init__(self) -> None:
        self._last_shown_s = time.monotonic()

    def __call__(self, what: str, done: int, of: int) -> None:
        now = time.monotonic()
        if now - self._last_shown_s >= _PROGRESS_INTERVAL_S or (done == of and of > 1):
            self._last_shown_s = now
            print_message(f"{what}: {done:,} of {of:,}")


def _ranks(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} must be a list of ranks: 0,7")
    return [int(part) for part in parts]
