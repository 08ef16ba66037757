"""The JSON answers as types, and the parts that they share.

Names state the unit: integer nanoseconds (``_ns``) or bytes. What is unknown is ``null``. A schema
version only ever gains fields.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from profiler_ext.findings import FigureUnit, SkippedRule
from profiler_ext.findings import Location as FindingPlace
from profiler_ext.records.inside import MeasuredKernel

SCHEMA_VERSION: Final = 3


def about(description: str) -> msgspec.Meta:
    """Return the schema's description of a field."""
    return msgspec.Meta(description=description)


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a part of an answer is: fields that are stated, and no other."""


class Cut(Part, frozen=True, kw_only=True):
    """What was left out of one list or text of an answer."""

    where: Annotated[str, about("the list or text, as a path of names from the answer")]
    kept: Annotated[int, about("so much of it is there")]
    total: Annotated[int, about("so much there was")]
    unit: Annotated[str, about("what is counted: items or characters")]
    reason: Annotated[str, about("what bounds it: top, budget or size")]
    left_out_ns: Annotated[int | None, about("time of what was left out, where it has one")] = None


class StepFacts(Part, frozen=True, kw_only=True):
    """A profiled step."""

    rank: int
    step: int
    wall_ns: int
    busy_ns: Annotated[int, about("how long its devices were busy, each once")]
    mfu: Annotated[float | None, about("model FLOPs utilisation, null where not known")]
    est_flops: Annotated[int | None, about("operations of the model's products")]
    known_fraction: Annotated[float | None, about("part of these whose unit and peak are known")]
    counted_fraction: Annotated[float | None, about("part of the products' time with operations")]


class StepKindFacts(Part, frozen=True, kw_only=True):
    """Steps of inference of one kind, by the shapes of what the model was given."""

    kind: Annotated[str, about("prefill, decode, speculative or sequences")]
    steps: Annotated[list[int], about("the recorded ones; none where they were timed alone")]
    batch: Annotated[list[int], about("least and most sequences, beams among them")]
    length: Annotated[list[int], about("least and most tokens of a sequence in a call")]
    context: Annotated[list[int] | None, about("least and most tokens so far, where a mask has it")]
    step_ns: Annotated[int | None, about("the usual; without profiling where that was measured")]
    is_profiled: Annotated[bool, about("step_ns is of recorded steps")]
    tokens: Annotated[float, about("of a step: computed, padding included; of a round, accepted")]
    is_most: Annotated[bool, about("how many drafted tokens are accepted is not known")]
    tokens_per_s: float | None


class SessionFacts(Part, frozen=True, kw_only=True):
    """What was profiled."""

    command: list[str]
    torch_version: str | None
    devices: list[str]
    ranks: list[int]
    world_size: int
    launches: int
    step_count: int
    step_kinds: Annotated[
        list[StepKindFacts],
        about("of inference; sums of tables are of the first unless a filter names another"),
    ] = msgspec.field(default_factory=list)
    steps: list[StepFacts]


class BreakdownRow(Part, frozen=True, kw_only=True):
    """Wall time of the profiled steps on each device, of one category."""

    scope: str
    level: str | None
    category: str
    duration_ns: int
    fraction: float | None


class GapRow(Part, frozen=True, kw_only=True):
    """Device time that is not attributed to a source line, by its reason."""

    gap: Annotated[str, about("the reason's name, as in the column gap")]
    description: str
    duration_ns: int
    fraction: Annotated[float | None, about("part of the time in which devices were busy")]
    remedy: str
    page: Annotated[str, about("where the documentation explains it, below docs")]


class Coverage(Part, frozen=True, kw_only=True):
    """How far an answer can be trusted."""

    breakdown: Annotated[
        list[BreakdownRow], about("adds up to the steps' wall time on each device")
    ]
    gaps: Annotated[list[GapRow], about("what of the busy time has no source line, and why")]
    line_fraction: Annotated[float | None, about("part of compiled device time with a line")]
    eager_line_fraction: Annotated[float | None, about("part of eager device time with a line")]
    backward_matched_fraction: Annotated[
        float | None, about("part of compiled backward with its forward")
    ]
    notes: Annotated[list[str], about("sentences: what is missing, and the remedy")]


class Figure(Part, frozen=True, kw_only=True):
    """A number in its unit, or a text."""

    name: str
    value: float | str
    unit: FigureUnit


class FindingEntry(Part, frozen=True, kw_only=True):
    """One thing to do."""

    rule: str
    rank: int
    summary: str
    location: FindingPlace
    est_saving_ns: int
    total_ns: int
    fraction: Annotated[float, about("est_saving_ns as a part of total_ns")]
    saving_per: Annotated[str, about("what the time is of: step, window, process or unknown")]
    confidence: Annotated[str, about("measured, estimated or upper_bound")]
    evidence: list[Figure]
    remedy: str
    overlaps_with: Annotated[
        list[str], about("larger ones that count part of its time, which is left out here")
    ]
    page: str


class FindingsPart(Part, frozen=True, kw_only=True):
    """Top recommendations, and which rules could not be judged."""

    step_ns: Annotated[int, about("wall time of the usual step")]
    unprofiled_step_ns: Annotated[
        int | None, about("the same without profiling, if measured in the steps before")
    ]
    rules_evaluated: Annotated[int, about("how many checks apply")]
    findings: list[FindingEntry]
    rules_skipped: list[SkippedRule]


class SourceLine(Part, frozen=True, kw_only=True):
    """A line of a source file, and its device time."""

    line: int
    text: str
    phases_ns: Annotated[dict[str, int], about("phase to time; a phase without time is left out")]


class FileEntry(Part, frozen=True, kw_only=True):
    """A source file, as far as it is known."""

    path: str
    is_complete: Annotated[bool, about("all lines are there, and they are those that ran")]
    missing: Annotated[str | None, about("why there is no more than the recorded lines")]
    duration_ns: int
    lines: list[SourceLine]


class DoctorCheck(Part, frozen=True, kw_only=True):
    """One thing that the doctor looked at."""

    subject: str
    state: Annotated[str, about("ok, off or missing")]
    detail: str
    is_fatal: Annotated[bool, about("nothing can be captured like this")]


class StoredRecord(Part, frozen=True, kw_only=True):
    """What is stored of a compiled graph."""

    key: str
    state: Annotated[str, about("whether this version reads it")]
    graph: Annotated[str | None, about("forward, backward or inference")]
    source: Annotated[str | None, about("the first source line of the graph")]
    nodes: int | None
    kernels: list[str]
    call_sites: int | None
    torch_version: str | None
    used_s: Annotated[float, about("when it was last used, in seconds since 1970")]
    size_bytes: int
    path: str


class Rows(Part, frozen=True, kw_only=True):
    """The rows of a table."""

    row_count: Annotated[int, about("how many rows the table has")]
    total_ns: Annotated[int | None, about("sum of duration_ns over all rows, left out or not")]
    rows: list[dict[str, Any]]


class Answer(Part, frozen=True, kw_only=True, tag_field="answer", tag="answer"):
    """What every answer has."""

    schema_version: Literal[3] = SCHEMA_VERSION
    cuts: Annotated[list[Cut], about("what was left out, and how much of it")] = msgspec.field(
        default_factory=list
    )


class SessionAnswer(Answer, frozen=True, kw_only=True, tag="of_session"):
    """What every answer about a session has."""

    session: SessionFacts
    coverage: Coverage


class TableAnswer(SessionAnswer, frozen=True, kw_only=True, tag="table"):
    """One table of a session; each is an answer that is called as the table is."""

    filters: Annotated[dict[str, Any], about("what the table is narrowed to")]
    row_count: int
    total_ns: Annotated[int | None, about("sum of duration_ns over all rows, left out or not")]
    rows: list[dict[str, Any]]


class BreakdownChange(Part, frozen=True, kw_only=True):
    """A part of the step time breakdown, in one recording without remedies and in one with."""

    name: Annotated[str, about("a phase's device time, or a cause of idle time")]
    base_ns: Annotated[float, about("of a mean recorded step; the profiler was on")]
    head_ns: float


class TrialRow(Part, frozen=True, kw_only=True):
    """What remedies won, measured in turn with the script without them."""

    remedies: Annotated[list[str], about("what was patched in; none of what was not patched")]
    rules: Annotated[list[str], about("the rules whose findings propose them")]
    on_top_of: Annotated[list[str], about("remedies on both sides: those kept before")]
    verdict: Annotated[
        str,
        about(
            "wins, changes the losses (faster, and not kept), gains less than 1%, slower, "
            "undecided, breaks the script, or not applicable"
        ),
    ]
    reason: Annotated[
        str | None, about("the script's last error, why nothing was patched, or why runs ended")
    ]
    base_children: Annotated[int, about("runs without these remedies, when it was decided")]
    children: Annotated[int, about("runs with these remedies")]
    base_step_ns: Annotated[
        int | None, about("step time without: geometric mean of the runs' medians")
    ]
    step_ns: Annotated[int | None, about("step time with")]
    gain: Annotated[float | None, about("part of base_step_ns that is saved; below 0 if slower")]
    gain_low: Annotated[
        float | None,
        about("95% confidence interval of the gain, for all looks at it; null of one run a side"),
    ]
    gain_high: float | None
    base_peak_bytes: Annotated[
        int | None, about("peak memory of the timed steps on a GPU, else of the process")
    ]
    peak_bytes: int | None
    base_startup_ns: Annotated[int | None, about("until steps were steady, less those steps")]
    startup_ns: int | None
    losses: Annotated[str, about("identical, within tolerance, different or unknown")]
    loss_difference: Annotated[float | None, about("largest relative difference of a loss")]
    patched: Annotated[int, about("calls or objects that were patched, in the first run")]
    changes: Annotated[
        list[BreakdownChange], about("what changed in the step time breakdown, of what wins")
    ]


class Measurements(Part, frozen=True, kw_only=True):
    """What ``profiler-ext try`` measured after the session was recorded."""

    command: list[str]
    rows: list[TrialRow]
    best: Annotated[list[str], about("the remedies to apply together")]
    total: Annotated[TrialRow | None, about("the best set against the script as it is")]
    stopped_by: Annotated[str | None, about("why the trials ended before they were complete")]


class PeakFacts(Part, frozen=True, kw_only=True):
    """The highest peak of a device's memory, in the recorded steps."""

    rank: int
    device: Annotated[int | None, about("null for the CPU")]
    step: int
    phase: Annotated[str, about("of the allocation that made it, as the next two")]
    file: str | None
    line: int | None
    peak_bytes: Annotated[int, about("the allocator's count")]
    kinds_bytes: Annotated[dict[str, int], about("kind of memory to bytes; add up to the peak")]


class Report(Answer, frozen=True, kw_only=True, tag="report"):
    """A session at a glance: what to do first, and the largest rows of some tables."""

    session: SessionFacts
    measured: Annotated[Measurements | None, about("null where nothing was tried since")] = None
    findings: FindingsPart
    coverage: Coverage
    tables: Annotated[dict[str, Rows], about("name of a table to its largest rows")]
    memory: Annotated[list[PeakFacts], about("of each device; empty where none was recorded")] = (
        msgspec.field(default_factory=list)
    )


class FindingsAnswer(SessionAnswer, frozen=True, kw_only=True, tag="findings"):
    """All findings of a session, what has most at stake first."""

    measured: Annotated[Measurements | None, about("null where nothing was tried since")] = None
    step_ns: Annotated[int, about("wall time of the usual step")]
    unprofiled_step_ns: Annotated[
        int | None, about("the same without profiling, if measured in the steps before")
    ]
    rules_evaluated: Annotated[int, about("how many checks apply")]
    findings: list[FindingEntry]
    rules_skipped: list[SkippedRule]


class AnnotatedSource(Answer, frozen=True, kw_only=True, tag="annotate"):
    """Source files with the device time of their lines."""

    files: list[FileEntry]


class Doctor(Answer, frozen=True, kw_only=True, tag="doctor"):
    """What fits on a machine, and what does not."""

    checks: list[DoctorCheck]


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


class HandEdit(Part, frozen=True, kw_only=True):
    """A change that is not in the diff."""

    remedy: str
    edit: str
    places: Annotated[list[str], about("file:line of what was patched")]
    is_tried: Annotated[bool, about("it was measured and kept; else it cannot be patched in")]


class TryAnswer(Answer, frozen=True, kw_only=True, tag="try"):
    """Remedies that were measured on a script, and the edit to make."""

    command: list[str]
    steps: Annotated[int, about("timed steps of each run, at least")]
    pairs: Annotated[int, about("runs of each side, at most")]
    runs: Annotated[int, about("how often the script was run, to record it too")]
    duration_ns: int
    on_device: Annotated[bool, about("step times are by the device's clock")]
    steps_by: Annotated[str, about("what ends a step")]
    rows: list[TrialRow]
    best: Annotated[list[str], about("the remedies to apply together")]
    total: Annotated[TrialRow | None, about("the best set against the script as it is")]
    diff: Annotated[str, about("unified diff of the user's files, empty where none can be written")]
    edits: Annotated[list[HandEdit], about("what is not in the diff")]
    stopped_by: Annotated[str | None, about("why the trials ended before they were complete")]
    notes: list[str]


class Failure(Answer, frozen=True, kw_only=True, tag="failure"):
    """A question that was not answered."""

    slug: Annotated[str, about("what kind of error it is")]
    message: Annotated[str, about("what was found, what was expected, what to do")]


class InsideAnswer(Answer, frozen=True, kw_only=True, tag="inside"):
    """What the time inside kernels is spent on, measured."""

    command: list[str]
    query: Annotated[str, about("the kernel or the line that was looked into")]
    device: Annotated[str, about("name of the GPU")]
    duration_ns: int
    kernels: Annotated[list[MeasuredKernel], about("the one that takes most time first")]
    notes: list[str]
