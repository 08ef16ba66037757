"""What is known of a job: its files, what each rank tells of itself, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from profiler_ext.records.analysis import RankCollectives
from profiler_ext.records.events import Codes, Ints

if TYPE_CHECKING:
    from profiler_ext.attribution.straggler_causes import DeviceTimeline
    from profiler_ext.exporters.tables import DataFrame

LineKey = tuple[str | None, int | None, str | None, str | None, str | None]
"""File, line, function, code and gap."""
CallKey = tuple[str | None, str | None, str | None, int | None, str | None, str | None, str | None]
"""Collective, process group, and a line key."""


class FileGap(Enum):
    """Why a rank, or a part of what it tells, is not in the tables of a job."""

    MISSING = "missing"
    UNREADABLE = "unreadable"
    TWICE = "twice"
    OTHER_TORCH = "other_torch"
    OTHER_JOB = "other_job"
    WORKER_LOST = "worker_lost"
    GROUP_NOT_WHOLE = "group_not_whole"
    NOT_MATCHED = "not_matched"
    NO_RANK = "no_rank"

    @property
    def words(self) -> str:
        """What it means, for a person."""
        return _WORDS[self]


_WORDS = {
    FileGap.MISSING: "no file of this rank was found",
    FileGap.UNREADABLE: "its file cannot be read",
    FileGap.TWICE: "several files are of this rank",
    FileGap.OTHER_TORCH: "another torch recorded it than most",
    FileGap.OTHER_JOB: "it is of a job of another size than most",
    FileGap.WORKER_LOST: "the workers that read it ended",
    FileGap.GROUP_NOT_WHOLE: "not all ranks of a process group are there",
    FileGap.NOT_MATCHED: "it is not told which collectives of the ranks are the same",
    FileGap.NO_RANK: "its file does not tell its rank",
}


@dataclass(frozen=True, slots=True)
class RankFile:
    """A file that may be a rank's session.

    Attributes:
        url: its path, or its URL where it is not on this machine.
        size_bytes: its size.
        rank: the rank that the name of its folder tells; ``None`` where it tells none.
    """

    url: str
    size_bytes: int
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class RankGap:
    """That a rank, a file, or how long was waited for a rank, is not in the tables.

    Attributes:
        reason: why.
        rank: the rank; ``None`` where that is not known.
        host: its host; ``""`` where that is not known.
        url: the file; ``""`` where there is none.
        found: what was found.
    """

    reason: FileGap
    rank: int | None
    host: str
    url: str
    found: str


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What a rank's session tells of itself.

    Attributes:
        rank: the rank.
        world_size: how many ranks the job has; 0 where that is not told.
        host: the machine; ``""`` where that is not told.
        url: the file.
        digest: of the file's bytes.
        torch_version: ``""`` where that is not told.
        device: the name of the device; ``""`` where that is not told.
        steps: the numbers of the profiled steps.
        step_ns: wall time of the usual step.
        base_ns: the wall time at which the file's own clock is zero.
        events: how many events it has.
        roots: folders of the program and its libraries, without which paths are shown.
        is_rank_known: whether it is known that it is of this rank.
    """

    rank: int
    world_size: int
    host: str
    url: str
    digest: str
    torch_version: str
    device: str
    steps: tuple[int, ...]
    step_ns: int
    base_ns: int
    events: int
    roots: tuple[str, ...] = ()
    is_rank_known: bool = True


@dataclass(frozen=True, slots=True)
class LineTimes:
    """Device time of the profiled steps by line, without that of collectives."""

    keys: tuple[LineKey, ...]
    duration_ns: Ints


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Device time of collectives by collective, process group and line, of the profiled steps.

    Attributes:
        keys: the rows.
        launches: how many launches each has.
        duration_ns: their time.
        exposed_ns: how long the device ran nothing else meanwhile.
        row: of each launch of :class:`RankCollectives` the row; -1 outside of the steps.
    """

    keys: tuple[CallKey, ...]
    launches: Ints
    duration_ns: Ints
    exposed_ns: Ints
    row: Codes


@dataclass(frozen=True, slots=True)
class RankSummary:
    """What of a rank travels to who asked: its facts, its times by line, and its collectives."""

    facts: RankFacts
    lines: LineTimes
    calls: CallTimes
    collectives: RankCollectives


@dataclass(frozen=True, slots=True)
class RankOnWorker:
    """What of a rank stays where it was read.

    Attributes:
        sums: name of a summing table to the rank's own.
        doing: what its devices did, of which others ask.
    """

    sums: Mapping[str, DataFrame]
    device_activity: DeviceTimeline


@dataclass(frozen=True, slots=True)
class RankResult:
    """What reading a rank's file comes to.

    Attributes:
        part: what travels.
        held: what stays.
    """

    part: RankSummary
    held: RankOnWorker
