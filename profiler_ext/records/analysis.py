"""Owns the result of attribution: launches, places, shares, steps, idle spans, the ledger.

Many launches point at few places, so places are records and launches and shares are columns.
Durations are integer nanoseconds; the shares of a launch add up to it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

from profiler_ext.records.events import Codes, Interned, Ints, MaskedInts
from profiler_ext.records.lineage import Frame
from profiler_ext.records.provenance import LibraryKernels
from profiler_ext.records.recording import Recording
from profiler_ext.records.vocabulary import Level, Phase

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Step:
    """One profiled step on the CPU's clock; it owns the launches enqueued within it."""

    number: int
    start_ns: int
    end_ns: int

    @property
    def wall_ns(self) -> int:
        """Wall time of the step."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Launches:
    """One row for each device event (on a CPU-only run: each C++ kernel and top-level ATen op).

    Attributes:
        event: row in ``Events``.
        step: step number; masked outside the profiled steps.
        name: the event's name.
        kernel: Inductor's kernel name; ``""`` for what Inductor did not launch.
        kind: a ``LaunchKind``.
        scope: a ``Scope``: in a call of a compiled graph, captured or not, or outside of all.
        device: device index; 0 for the CPU.
        stream: stream; masked on the CPU.
        start_ns: start.
        duration_ns: duration.
        phase: a ``Phase``, the one of the largest share.
        graph: index into ``Recording.graphs``; masked outside compiled graphs.
        call_site: ordinal of the call site in its graph; masked where there is none.
        op_event: row of the innermost CPU op that launched it; masked when unknown.
        forward: of the backward of eager work the launch of the forward op that it differentiates,
            where the lines of the program tell that op; else masked.
        correlation: the trace's correlation id.
        external_id: the trace's external id.
        level: a ``Level``: how far the largest share was led.
        evidence: a ``SiteEvidence``, or ``""``.
        mechanism: the ``Mechanism`` that found the line of the largest share, or ``""``.
        gap: a ``GapReason``, or ``""``.
    """

    event: Ints
    step: MaskedInts
    name: Interned
    kernel: Interned
    kind: Interned
    scope: Interned
    device: Ints
    stream: MaskedInts
    start_ns: Ints
    duration_ns: Ints
    phase: Interned
    graph: MaskedInts
    call_site: MaskedInts
    op_event: MaskedInts
    forward: MaskedInts
    correlation: MaskedInts
    external_id: MaskedInts
    level: Interned
    evidence: Interned
    mechanism: Interned
    gap: Interned

    def __len__(self) -> int:
        """Return the number of launches."""
        return len(self.event)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a share of a launch belongs: an FX node (or an eager ATen op), or a gap.

    Attributes:
        graph: index into ``Recording.graphs``, ``None`` outside compiled graphs.
        node: FX node name; ``None`` for eager ops and gaps.
        aten_op: ``aten.addmm.default``, or ``aten::add_`` for an eager op.
        seq_nr: torch's trace-time number.
        phase: phase of the node.
        autograd_backward: torch's tag as it gave it.
        forward_node: name in the joint graph of the forward node.
        forward_evidence: the rule that found it, or why there is none: a ``ForwardEvidence``;
            ``None`` for work that differentiates nothing.
        file, line, function, code: innermost frame of the model.
        user_file, user_line: innermost frame under the user's roots.
        caller_file, caller_line: of a graph that runs inside an op of another graph's call, the
            model's frame of that op.
        stack: the whole stack, outermost first.
        module: path from the user's model, ``layers.7.mlp``; ``""`` is the model itself.
        module_class: class of that module.
        annotation: the user's own labels.
        level: how far it was led.
        evidence: the truth that the line came from.
        mechanism: by which way a compiled node's line was found: a ``Mechanism``; ``None`` where it
            has none, of eager work, and in recordings of before there was such a column.
        gap: why there is no line, or no place at all.
        is_phase_corrected: torch's backward tag leaked onto this forward node.
    """

    graph: int | None = None
    node: str | None = None
    aten_op: str | None = None
    seq_nr: int | None = None
    phase: Phase = Phase.OTHER
    autograd_backward: bool | None = None
    forward_node: str | None = None
    forward_evidence: str | None = None
    file: str | None = None
    line: int | None = None
    function: str | None = None
    code: str | None = None
    user_file: str | None = None
    user_line: int | None = None
    caller_file: str | None = None
    caller_line: int | None = None
    stack: tuple[Frame, ...] = ()
    module: str | None = None
    module_class: str | None = None
    annotation: str | None = None
    level: Level = Level.NONE
    evidence: str | None = None
    mechanism: str | None = None
    gap: str | None = None
    is_phase_corrected: bool = False


@dataclass(frozen=True, slots=True)
class Shares:
    """Which part of which launch belongs to which place; sorted by launch.

    Attributes:
        launch: row in ``Launches``.
        place: index into ``Analysis.places``.
        duration_ns: the part; for each launch they add up to its duration.
    """

    launch: Ints
    place: Codes
    duration_ns: Ints

    def __len__(self) -> int:
        """Return the number of shares."""
        return len(self.launch)


@dataclass(frozen=True, slots=True)
class IdleSpan:
    """A span of a step in which a device ran nothing, and what the CPU did then.

    Attributes:
        step: step number.
        device: device index.
        start_ns: start.
        duration_ns: length.
        cpu_activity: the innermost CPU event that covers most of it, ``None`` when nothing did.
        file, line, code: the line at which the thread that makes the steps was for most of it;
            ``None`` where that is not known.
    """

    step: int
    device: int
    start_ns: int
    duration_ns: int
    cpu_activity: str | None
    file: str | None = None
    line: int | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Idle time of one step and device in which the CPU was at one place and did one thing.

    Attributes:
        step: step number.
        device: device index.
        place: line and module at which the thread that makes the steps was, or why none is known.
        cpu_activity: as :class:`IdleSpan` has it, of each part that is at one place.
        duration_ns: all of these parts.
        spans: how many idle spans have a part in it.
    """

    step: int
    device: int
    place: Place
    cpu_activity: str | None
    duration_ns: int
    spans: int


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One line of the ledger; the lines of a step and device add up to the step's wall time.

    Attributes:
        step: step number.
        device: device index.
        scope: a ``Scope``.
        level: a ``Level``; ``None`` of idle time.
        category: a ``LedgerCategory``, or a gap's reason.
        duration_ns: wall time.
    """

    step: int
    device: int
    scope: str
    level: str | None
    category: str
    duration_ns: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """All that attribution found in a recording; every report and export is made from it.

    Attributes:
        recording: what it was made from.
        steps: the profiled steps.
        launches: the launches in order of start time.
        places: what shares point at.
        shares: launch to place.
        idle: the largest idle spans of each step and device, largest first.
        idle_times: all idle time, by where the CPU was and what it did; where steps overlap, a
            moment is of the one that opened last, else they add up to the ledger's idle time.
        ledger: wall time of each step and device, by category.
        notes: sentences for a person: what was corrected, what is missing and the remedy.
        library_kernels: pairs of graph, and of call site and its device events' names, for the
            library calls of graphs whose replays were explained whole.
    """

    recording: Recording
    steps: tuple[Step, ...]
    launches: Launches
    places: tuple[Place, ...]
    shares: Shares
    idle: tuple[IdleSpan, ...] = ()
    idle_times: tuple[IdleTime, ...] = ()
    ledger: tuple[LedgerLine, ...] = ()
    notes: tuple[str, ...] = ()
    library_kernels: tuple[tuple[int, LibraryKernels], ...] = ()
