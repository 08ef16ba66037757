"""Owns the answers about a session: what a command or a tool returns to a program."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from profiler_ext.exporters.answers.parts import (
    SCHEMA_VERSION,
    Cut,
    FileEntry,
    FindingEntry,
    FindingsPart,
    DoctorCheck,
    Part,
    Rows,
    SessionFacts,
    StoredRecord,
    Whole,
    about,
)
from profiler_ext.findings import Unjudged


class Answer(Part, frozen=True, kw_only=True, tag_field="answer", tag="answer"):
    """What every answer has."""

    schema_version: Literal[2] = SCHEMA_VERSION
    cuts: Annotated[list[Cut], about("what was left out, and how much of it")] = msgspec.field(
        default_factory=list
    )


class SessionAnswer(Answer, frozen=True, kw_only=True, tag="of_session"):
    """What every answer about a session has."""

    session: SessionFacts
    whole: Whole


class TableAnswer(SessionAnswer, frozen=True, kw_only=True, tag="table"):
    """One table of a session; each is an answer that is called as the table is."""

    filters: Annotated[dict[str, Any], about("what the table is narrowed to")]
    row_count: int
    total_ns: Annotated[int | None, about("sum of duration_ns over all rows, left out or not")]
    rows: list[dict[str, Any]]


class Report(Answer, frozen=True, kw_only=True, tag="report"):
    """A session at a glance: what to do first, and the largest rows of some tables."""

    session: SessionFacts
    findings: FindingsPart
    whole: Whole
    tables: Annotated[dict[str, Rows], about("name of a table to its largest rows")]


class FindingsAnswer(SessionAnswer, frozen=True, kw_only=True, tag="findings"):
    """All findings of a session, what has most at stake first."""

    step_ns: Annotated[int, about("wall time of the usual step")]
    unrecorded_ns: Annotated[
        int | None, about("the same without recording, where steps before it tell")
    ]
    judged: Annotated[int, about("how many rules could be judged")]
    findings: list[FindingEntry]
    unjudged: list[Unjudged]


class AnnotatedSource(Answer, frozen=True, kw_only=True, tag="annotate"):
    """Source files with the device time of their lines."""

    files: list[FileEntry]


class Doctor(Answer, frozen=True, kw_only=True, tag="doctor"):
    """What fits on a machine, and what does not."""

    looked_at: list[DoctorCheck]


class CacheList(Answer, frozen=True, kw_only=True, tag="cache_list"):
    """What the store holds of compiled graphs, what was used last first."""

    folder: str
    record_count: int
    total_bytes: int
    records: list[StoredRecord]


class Pruned(Answer, frozen=True, kw_only=True, tag="cache_prune"):
    """What was removed from the store, and what is left."""

    folder: str
    removed_files: int
    removed_bytes: int
    left_files: int
    left_bytes: int


class Written(Answer, frozen=True, kw_only=True, tag="written"):
    """What a command wrote."""

    path: str
    format: Annotated[str, about("its name in formats.md")]
    notes: Annotated[list[str], about("sentences: how to see it, what was corrected")]


class SequenceTable(Answer, frozen=True, kw_only=True, tag="seq_table"):
    """One row for each op of a model's joint graph, in graph order."""

    row_count: int
    rows: list[dict[str, Any]]


class Sessions(Answer, frozen=True, kw_only=True, tag="sessions"):
    """The sessions that a server can be asked about."""

    folders: Annotated[list[str], about("only what lies below these is read")]
    sessions: Annotated[list[str], about("paths, as the other tools take them")]
    is_partial: Annotated[bool, about("there may be more: not all folders were looked at")]


class JobAnswer(Answer, frozen=True, kw_only=True, tag="job"):
    """All ranks of a job, read on Dask: how they differ, and what is missing."""

    place: Annotated[str, about("the folder or URL that was read")]
    rank_count: int
    tables: Annotated[
        dict[str, list[dict[str, Any]]],
        about("name of a table, as cluster.md has it, to its rows"),
    ]
    missing: Annotated[list[dict[str, Any]], about("ranks and files that are in no table, and why")]
    notes: Annotated[list[str], about("sentences: how the clocks were set, what is not known")]


class Failure(Answer, frozen=True, kw_only=True, tag="failure"):
    """A question that was not answered."""

    slug: Annotated[str, about("what kind of error it is")]
    message: Annotated[str, about("what was found, what was expected, what to do")]
