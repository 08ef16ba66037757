"""Reads one rank on a worker; only aggregates leave it.

Nothing here needs Dask: functions take a file and return records.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath

import numpy as np

from profiler_ext import errors, file_io
from profiler_ext.attribution import straggler_causes
from profiler_ext.attribution.collectives import collectives_of
from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.cluster import listing, records, tables
from profiler_ext.exporters.table_kinds import TABLES
from profiler_ext.exporters.tables import Table
from profiler_ext.kineto import distributed, source
from profiler_ext.kineto.recording import read_recording
from profiler_ext.records import events, share_sums, vocabulary
from profiler_ext.records.analysis import Analysis, Place, RankCollectives
from profiler_ext.records.recording import Recording
from profiler_ext.records.step_kinds import of_usual_kind
from profiler_ext.sessions.session import Session

# The tables that workers sum over ranks.
SUMMED = ("by_line", "by_module", "by_op", "by_kernel", "by_phase", "coverage", "idle_by_cause")
_KINDS = tuple(kind for kind in TABLES if kind.name in SUMMED)
_CHUNK_BYTES = 1 << 20
_NOWHERE = Place()


def read_as_rank(path: Path, file: records.RankFile) -> Recording:
    """Return a recording with its rank, by its folder where the file has none."""
    return distributed.with_rank(read_recording(path), otherwise=file.rank)


def line_times(analysis: Analysis) -> records.LineTimes:
    """Return device time by line as ``by_line`` has it, without collectives."""
    launches, shares = analysis.launches, analysis.shares
    chosen = launches.in_steps & ~launches.kind.where(vocabulary.LaunchKind.COMMUNICATION)
    lines = [_line_key(place) for place in analysis.places]
    row, known = share_sums.codes_of((file, line, gap) for file, line, _, _, gap in lines)
    of_shares = np.flatnonzero(chosen[shares.launch])
    place, times = shares.place[of_shares], shares.duration_ns[of_shares]
    duration_ns = share_sums.sum_by(row[place], times, len(known))
    spent = np.flatnonzero(duration_ns)
    # Function and text do not tell rows apart: show those of the first place.
    firsts = events.first_rows(row)[spent].tolist()
    return records.LineTimes(tuple(lines[at] for at in firsts), duration_ns[spent])


def _line_key(place: Place) -> records.LineKey:
    gap = place.gap if place.file is None else None
    return place.file, place.line, place.function, place.code, gap


def call_times(analysis: Analysis, collectives: RankCollectives) -> records.CallTimes:
    """Return device time by collective, process group and line, as ``communication`` has it."""
    communication, launches = analysis.communication, analysis.launches
    profiled = np.flatnonzero(launches.in_steps[communication.launch])
    places = share_sums.largest_places(analysis)[communication.launch]
    row, known = share_sums.codes_of(
        _key(analysis, at, int(places[at])) for at in profiled.tolist()
    )
    of_launch = np.full(len(launches), NO_ROW, dtype=np.int32)
    of_launch[communication.launch[profiled]] = row
    duration_ns = launches.duration_ns[communication.launch[profiled]]
    return records.CallTimes(
        keys=tuple(known),
        launches=np.bincount(row, minlength=len(known)).astype(np.int64),
        duration_ns=share_sums.sum_by(row, duration_ns, len(known)),
        exposed_ns=share_sums.sum_by(row, communication.exposed_ns[profiled], len(known)),
        row=of_launch[collectives.launch],
    )


def _key(analysis: Analysis, at: int, place: int) -> records.CallKey:
    communication, line = analysis.communication, tables.line_key(analysis.places[place])
    return (communication.collective[at] or None, communication.process_group[at] or None, *line)


def median_step_ns(walls_ns: Sequence[int]) -> int:
    """Return the lower median; 0 for none."""
    return sorted(walls_ns)[(len(walls_ns) - 1) // 2] if walls_ns else 0


def read_rank(file: records.RankFile) -> records.RankResult | records.RankGap:
    """Return what a rank's file gives, or why it cannot be read."""
    try:
        with local_copy(file) as path:
            return _read(file, path)
    except errors.ProfilerExtError as error:
        return _unread(file, str(error))
    except Exception as error:  # of one file; each file system has errors of its own
        return _unread(file, listing.error_line(error))


def read_ranks(files: Sequence[records.RankFile]) -> list[records.RankResult | records.RankGap]:
    """Read several ranks' files."""
    return [read_rank(file) for file in files]


def parts_of(
    reads: Sequence[records.RankResult | records.RankGap],
) -> list[records.RankSummary | records.RankGap]:
    """Return what of some ranks travels."""
    return [each if isinstance(each, records.RankGap) else each.part for each in reads]


def held_of(
    reads: Sequence[records.RankResult | records.RankGap],
) -> list[records.RankOnWorker | None]:
    """Return what of some ranks stays; ``None`` for one that was not read."""
    return [None if isinstance(each, records.RankGap) else each.held for each in reads]


def sums_of(held: Sequence[records.RankOnWorker], which: Sequence[int]) -> Mapping[str, Table]:
    """Return the sums of some ranks' tables, by the tables' names."""
    return sum_of([held[at].sums for at in which])


def sum_of(several: Sequence[Mapping[str, Table]]) -> Mapping[str, Table]:
    """Return the sums of tables by their names."""
    return {name: tables.summed(name, [each[name] for each in several]) for name in SUMMED}


def answer_queries(
    held: Sequence[records.RankOnWorker], at: int, queries: list[straggler_causes.TimeQuery]
) -> straggler_causes.TimeReply:
    """Return a rank's reply to time queries, with only the places it refers to."""
    device_activity = held[at].device_activity
    reply = straggler_causes.time_reply(device_activity, queries)
    used = {place for spent in reply.spent for _, place, _ in spent.activities}
    places = [each if at in used else _NOWHERE for at, each in enumerate(device_activity.places)]
    return straggler_causes.TimeReply(reply.activities, places, reply.spent)


def session_of(file: records.RankFile, roots: tuple[str, ...] = ()) -> Session:
    """Return a rank's session, in this process."""
    with ExitStack() as stack:
        try:
            path = stack.enter_context(local_copy(file))
            session = Session(read_as_rank(path, file), roots=roots)
        except OSError as error:
            raise errors.TraceError(f"cannot read {file.url}: {error}; check the path") from error
        # Events of a long file are read lazily: keep it while the session lives.
        weakref.finalize(session, stack.pop_all().close)
        return session


@contextmanager
def local_copy(file: records.RankFile) -> Iterator[Path]:
    """Yield a file as a local one; a copy is removed afterwards."""
    if not listing.is_remote(file.url):
        yield Path(file.url)
        return
    if file.size_bytes > source.Limit.BYTES.count:
        raise errors.TraceError(f"{file.url} {source.Limit.BYTES.exceeded('has too many bytes')}")
    with file_io.temporary_folder(f"{file.url} cannot be read") as folder:
        path = folder / PurePosixPath(file.url).name
        with listing.open_file(file.url, "rb") as remote, path.open("wb") as local:
            while chunk := remote.read(_CHUNK_BYTES):
                local.write(chunk)
        try:
            yield path
        except errors.TraceError as error:
            raise errors.TraceError(str(error).replace(str(path), file.url)) from error


def _read(file: records.RankFile, path: Path) -> records.RankResult:
    analysis = of_usual_kind(Session(read_as_rank(path, file)).analysis)
    collectives = collectives_of(analysis)
    part = records.RankSummary(
        facts=_facts(file, path, analysis),
        lines=line_times(analysis),
        calls=call_times(analysis, collectives),
        collectives=collectives,
    )
    sums = {kind.name: kind.make(analysis) for kind in _KINDS}
    return records.RankResult(
        part,
        records.RankOnWorker(
            sums, straggler_causes.compact(straggler_causes.device_timeline(analysis))
        ),
    )


def _facts(file: records.RankFile, path: Path, analysis: Analysis) -> records.RankFacts:
    recording = analysis.recording
    settings = recording.settings
    with path.open("rb") as opened:
        digest = hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    # Not from the file's name: ``tensorboard_trace_handler`` begins it with any worker name.
    host = recording.settings.host or distributed.host_name(recording.trace)
    return records.RankFacts(
        rank=settings.rank,
        world_size=settings.world_size if settings.torch_version or settings.world_size > 1 else 0,
        host=host,
        url=file.url,
        digest=digest,
        torch_version=settings.torch_version,
        device=next((each.name for each in recording.trace.devices), ""),
        steps=tuple(step.number for step in analysis.steps),
        step_ns=median_step_ns([step.wall_ns for step in analysis.steps]),
        base_ns=recording.trace.base_ns,
        events=len(recording.trace.events),
        roots=(*settings.user_roots, *settings.library_roots),
        is_rank_known=file.rank is not None or distributed.is_rank_known(recording),
    )


def _unread(file: records.RankFile, result: str) -> records.RankGap:
    return records.RankGap(records.FileGap.UNREADABLE, file.rank, "", file.url, result)
