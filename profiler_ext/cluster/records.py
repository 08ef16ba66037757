"""The records of a job: its files, what each rank sends, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from profiler_ext.records.analysis import RankCollectives
from profiler_ext.records.events import Codes, Ints

if TYPE_CHECKING:
    from profiler_ext.attribution.straggler_causes import DeviceTimeline
    from profiler_ext.exporters.tables import Table

# File, line, function, code and gap.
LineKey = tuple[str | None, int | None, str | None, str | None, str | None]
# Collective, process group, and a line key.
CallKey = tuple[str | None, str | None, str | None, int | None, str | None, str | None, str | None]


class FileGap(Enum):
    """Why a rank, or a part of its data, is not in a job's tables."""

    MISSING = "missing"
    UNREADABLE = "unreadable"
    DUPLICATE_RANK = "duplicate_rank"
    OTHER_TORCH = "other_torch"
    OTHER_JOB = "other_job"
    WORKER_LOST = "worker_lost"
    INCOMPLETE_GROUP = "incomplete_group"
    NOT_MATCHED = "not_matched"
    NO_RANK = "no_rank"

    @property
    def label(self) -> str:
        """What it means, for a person."""
        return _WORDS[self]


_WORDS = {
    FileGap.MISSING: "no file of this rank was found",
    FileGap.UNREADABLE: "its file cannot be read",
    FileGap.DUPLICATE_RANK: "several files are of this rank",
    FileGap.OTHER_TORCH: "another torch recorded it than most",
    FileGap.OTHER_JOB: "it is of a job of another size than most",
    FileGap.WORKER_LOST: "the workers that read it ended",
    FileGap.INCOMPLETE_GROUP: "not all ranks of a process group are there",
    FileGap.NOT_MATCHED: "it is unknown which collectives of the ranks are the same",
    FileGap.NO_RANK: "its file does not tell its rank",
}


@dataclass(frozen=True, slots=True)
class RankFile:
    """A file that may be a rank's session."""

    url: str  # a path, or a URL for a remote file
    size_bytes: int
    rank: int | None = None  # as its folder's name has it


@dataclass(frozen=True, slots=True)
class RankGap:
    """A rank, a file, or time spent waiting for a rank that is not in the tables."""

    reason: FileGap
    rank: int | None  # ``None`` where unknown
    host: str  # ``""`` where unknown
    url: str  # ``""`` where there is no file
    detail: str


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What a rank's session says of itself; ``""`` where it does not."""

    rank: int
    world_size: int  # 0 where unknown
    host: str
    url: str
    digest: str  # of the file's bytes
    torch_version: str
    device: str
    steps: tuple[int, ...]  # numbers of the profiled steps
    step_ns: int  # wall time of the median step
    base_ns: int  # wall time at zero of the file's clock
    events: int
    roots: tuple[str, ...] = ()  # of the program and its libraries, left out of shown paths
    is_rank_known: bool = True


@dataclass(frozen=True, slots=True)
class LineTimes:
    """Device time of the profiled steps by line, without collectives."""

    keys: tuple[LineKey, ...]
    duration_ns: Ints


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Device time of collectives by collective, process group and line, of the profiled steps."""

    keys: tuple[CallKey, ...]
    launches: Ints
    duration_ns: Ints
    exposed_ns: Ints  # while the device ran nothing else
    row: Codes  # row of each launch of :class:`RankCollectives`; -1 outside of the steps


@dataclass(frozen=True, slots=True)
class RankSummary:
    """What of a rank travels: its facts, its times by line, and its collectives."""

    facts: RankFacts
    lines: LineTimes
    calls: CallTimes
    collectives: RankCollectives


@dataclass(frozen=True, slots=True)
class RankOnWorker:
    """What of a rank stays on the worker that read it."""

    sums: Mapping[str, Table]  # name of a summing table to the rank's own
    device_activity: DeviceTimeline  # what its devices ran, for queries of other ranks


@dataclass(frozen=True, slots=True)
class RankResult:
    """What reading a rank's file gives."""

    part: RankSummary  # what travels
    held: RankOnWorker  # what stays
