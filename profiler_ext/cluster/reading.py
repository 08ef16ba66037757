"""Owns the reading of one rank, on the machine of a worker; only aggregates leave it.

Nothing in here needs Dask: a function is called with a file and returns records.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath

from profiler_ext.attribution.collectives import collectives_of
from profiler_ext.attribution.doing import TimeQuery, compact, device_timeline
from profiler_ext.attribution.lateness import TimeReply, time_reply
from profiler_ext.cluster.identity import device_of, host_of, read_as_rank
from profiler_ext.cluster.locations import is_remote, open_file, error_line
from profiler_ext.cluster.rank_times import call_times, line_times, median_step_ns
from profiler_ext.cluster.records import (
    FileGap,
    RankFacts,
    RankFile,
    RankGap,
    RankOnWorker,
    RankSummary,
    RankResult,
)
from profiler_ext.cluster.tables.summing import summed
from profiler_ext.errors import ProfilerExtError, TraceError
from profiler_ext.exporters.table_kinds import TABLES
from profiler_ext.exporters.tables import DataFrame
from profiler_ext.files.passing import temporary_folder
from profiler_ext.kineto.distributed import is_rank_known
from profiler_ext.kineto.limits import Limit
from profiler_ext.records import Analysis, Place
from profiler_ext.sessions.session import Session

SUMMED = ("by_line", "by_module", "by_op", "by_kernel", "by_phase", "coverage", "idle_by_cause")
"""The tables that are summed over ranks where they are read."""
_KINDS = tuple(kind for kind in TABLES if kind.name in SUMMED)
_CHUNK_BYTES = 1 << 20
_NOWHERE = Place()


def read_rank(file: RankFile) -> RankResult | RankGap:
    """Return what a rank's file comes to, or why it cannot be read.

    Args:
        file: the file.
    """
    try:
        with local_copy(file) as path:
            return _read(file, path)
    except ProfilerExtError as error:
        return _unread(file, str(error))
    except Exception as error:  # of one file; each file system has errors of its own
        return _unread(file, error_line(error))


def read_ranks(files: Sequence[RankFile]) -> list[RankResult | RankGap]:
    """Return what some ranks' files come to, each by itself.

    Args:
        files: the files.
    """
    return [read_rank(file) for file in files]


def parts_of(reads: Sequence[RankResult | RankGap]) -> list[RankSummary | RankGap]:
    """Return what of some ranks travels."""
    return [each if isinstance(each, RankGap) else each.part for each in reads]


def held_of(reads: Sequence[RankResult | RankGap]) -> list[RankOnWorker | None]:
    """Return what stays of some ranks; nothing of those that could not be read."""
    return [None if isinstance(each, RankGap) else each.held for each in reads]


def sums_of(held: Sequence[RankOnWorker], which: Sequence[int]) -> Mapping[str, DataFrame]:
    """Return the sums of some ranks' tables by the tables' names.

    Args:
        held: what stays of ranks that were read together.
        which: the places of those that count, in order of rank.
    """
    return sum_of([held[at].sums for at in which])


def sum_of(several: Sequence[Mapping[str, DataFrame]]) -> Mapping[str, DataFrame]:
    """Return the sums of tables by their names.

    Args:
        several: those of ranks, or sums of them, in order of rank.
    """
    return {name: summed(name, [each[name] for each in several]) for name in SUMMED}


def answer_queries(held: Sequence[RankOnWorker], at: int, queries: list[TimeQuery]) -> TimeReply:
    """Return what a rank answers to what it is asked: with the places alone that it points at.

    Args:
        held: what stays of ranks that were read together.
        at: the place of the rank among them.
        asked: what is asked of it.
    """
    device_activity = held[at].device_activity
    told = time_reply(device_activity, queries)
    used = {place for spent in told.spent for _, place, _ in spent.activities}
    places = [each if at in used else _NOWHERE for at, each in enumerate(device_activity.places)]
    return TimeReply(told.activities, places, told.spent)


def session_of(file: RankFile, roots: tuple[str, ...] = ()) -> Session:
    """Return a rank's session, in this process.

    Args:
        file: the file.
        roots: folders from which source may be shown.

    Raises:
        TraceError: It cannot be read.
    """
    with ExitStack() as stack:
        try:
            path = stack.enter_context(local_copy(file))
            session = Session(read_as_rank(path, file), roots=roots)
        except OSError as error:
            raise TraceError(f"cannot read {file.url}: {error}; check the path") from error
        # Events of a long file are read from it when they are asked for.
        weakref.finalize(session, stack.pop_all().close)
        return session


@contextmanager
def local_copy(file: RankFile) -> Iterator[Path]:
    """Yield a file as one of this machine, which is there for so long.

    Args:
        file: the file.

    Raises:
        TraceError: It is too large, or cannot be read.
        MissingExtraError: A package for such URLs is not installed here.
        OutputError: There is no folder for it on this machine.
    """
    if not is_remote(file.url):
        yield Path(file.url)
        return
    if file.size_bytes > Limit.BYTES.count:
        raise TraceError(f"{file.url} {Limit.BYTES.told('has too many bytes')}")
    with temporary_folder(f"{file.url} cannot be read") as folder:
        path = folder / PurePosixPath(file.url).name
        with open_file(file.url, "rb") as remote, path.open("wb") as local:
            while chunk := remote.read(_CHUNK_BYTES):
                local.write(chunk)
        try:
            yield path
        except TraceError as error:
            raise TraceError(str(error).replace(str(path), file.url)) from error


def _read(file: RankFile, path: Path) -> RankResult:
    analysis = Session(read_as_rank(path, file)).analysis
    collectives = collectives_of(analysis)
    part = RankSummary(
        facts=_facts(file, path, analysis),
        lines=line_times(analysis),
        calls=call_times(analysis, collectives),
        collectives=collectives,
    )
    sums = {kind.name: kind.make(analysis) for kind in _KINDS}
    return RankResult(part, RankOnWorker(sums, compact(device_timeline(analysis))))


def _facts(file: RankFile, path: Path, analysis: Analysis) -> RankFacts:
    recording = analysis.recording
    settings = recording.settings
    return RankFacts(
        rank=settings.rank,
        world_size=settings.world_size if settings.torch_version or settings.world_size > 1 else 0,
        host=host_of(recording),
        url=file.url,
        digest=_digest(path),
        torch_version=settings.torch_version,
        device=device_of(recording),
        steps=tuple(step.number for step in analysis.steps),
        step_ns=median_step_ns([step.wall_ns for step in analysis.steps]),
        base_ns=recording.trace.base_ns,
        events=len(recording.trace.events),
        roots=(*settings.user_roots, *settings.library_roots),
        is_rank_known=file.rank is not None or is_rank_known(recording),
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _unread(file: RankFile, result: str) -> RankGap:
    return RankGap(FileGap.UNREADABLE, file.rank, "", file.url, result)
