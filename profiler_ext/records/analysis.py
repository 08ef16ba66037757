"""The result of attribution: launches, places, shares, steps, idle time, communication.

Device time of a collective is *exposed* where the device ran nothing else at the same time, and
*overlapped* where it did. Where several ranks are known together, on aligned clocks, a rank *waits*
from its own start of a collective to the start of the last rank's; the rest is the transfer.

It is small enough that those of a thousand ranks fit into one process: 64 bytes a collective that
is one launch, and 20 for each part of it in which its device ran nothing else.

Many launches point at few places, so places are records and launches and shares are columns.
Durations are integer nanoseconds; the shares of a launch add up to it exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from profiler_ext.records.events import Codes, Interned, Ints, MaskedInts
from profiler_ext.records.lineage import Frame
from profiler_ext.records.provenance import LibraryKernels
from profiler_ext.records.recording import Recording
from profiler_ext.records.vocabulary import Level, Phase


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


_T = TypeVar("_T")


class Derived:
    """Values by their names; each is made when it is first asked for."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def once(self, name: Hashable, make: Callable[[], _T]) -> _T:
        """Return a value."""
        if name not in self._known:
            self._known[name] = make()
        known: _T = self._known[name]
        return known


@dataclass(frozen=True, slots=True)
class IdlePieces:
    """All idle time of the steps, cut where its cause or the CPU's line changes; in order of time.

    The pieces of a step and device do not overlap. They add up to the ledger's idle time; where
    steps overlap a moment is of the step that opened last.

    Attributes:
        step: number of the step.
        device: the device.
        span: number of the idle span that it is a piece of; what lies between two launches.
        start_ns: when it began.
        duration_ns: how long it was.
        cause: an ``IdleCause``.
        place: index into ``places``: where the thread that makes the steps was; where a compiled
            graph waited, the line of what waited.
        cause_place: the same, of what caused it: after a synchronisation the line that waited.
        cpu_activity: the innermost CPU event that covers most of it; ``""`` when nothing does.
        places: what these point at; one without a line says why.
    """

    step: Ints
    device: Ints
    span: Ints
    start_ns: Ints
    duration_ns: Ints
    cause: Interned
    place: Codes
    cause_place: Codes
    cpu_activity: Interned
    places: tuple[Place, ...]

    def __len__(self) -> int:
        """Return the number of pieces."""
        return len(self.start_ns)


_NOTHING = np.empty(0, dtype=np.int64)
_NO_TEXTS = Interned(np.empty(0, dtype=np.int32), ())
_NO_CODES = np.empty(0, dtype=np.int32)
NO_IDLE = IdlePieces(
    *(_NOTHING,) * 5, _NO_TEXTS, _NO_CODES, _NO_CODES, cpu_activity=_NO_TEXTS, places=()
)
"""Devices that were never idle."""


@dataclass(frozen=True, slots=True)
class Communication:
    """One row for each launch that communicates, in the order of the launches.

    Attributes:
        launch: row in ``Launches``.
        collective: ``allreduce``: what it does, as torch calls it; ``""`` where that is not told.
        process_group: the group that it was called on; ``""`` where that is not told.
        exposed_ns: how long the device ran nothing else meanwhile; the rest is overlapped. It is
            what the ledger has of it, but for what lies outside of the steps.
        waiting_ns: how long it waited for the last rank of its group, at most its duration; masked
            where not all ranks of the group are known, or the collective may begin without them.
        late_ns: how long another rank of the group had nothing to run but to wait when this one,
            the last, had not begun: of the one that waited longest so; 0 where another was the
            last, masked as ``waiting_ns``.
    """

    launch: Ints
    collective: Interned
    process_group: Interned
    exposed_ns: Ints
    waiting_ns: MaskedInts
    late_ns: MaskedInts

    def __len__(self) -> int:
        """Return the number of launches."""
        return len(self.launch)


@dataclass(frozen=True, slots=True)
class RankDelay:
    """What made a rank late for a collective, while another had nothing to run but to wait for it.

    It is what this rank spent more time in than that one, since both were last level: an estimate.
    The rows of a launch add up to its ``late_ns``.

    Attributes:
        launch: row in ``Launches`` of the collective to which this rank came last.
        cause: the ``IdleCause`` of that idle time; ``""`` where the device ran something else.
        place: index into ``places``: of what it ran, or of what it idled for.
        duration_ns: how long the other one waited because of that.
        places: what these point at.
    """

    launch: Ints
    cause: Interned
    place: Codes
    duration_ns: Ints
    places: tuple[Place, ...]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.launch)


_NONE = np.empty(0, dtype=np.int64)
_NO_STRINGS = Interned(np.empty(0, dtype=np.int32), ())
_UNKNOWN = np.ma.MaskedArray(_NONE, mask=np.empty(0, dtype=np.bool_))
NO_COMMUNICATION = Communication(_NONE, _NO_STRINGS, _NO_STRINGS, _NONE, _UNKNOWN, _UNKNOWN)
"""Of devices that run no collective."""
NO_RANK_DELAY = RankDelay(_NONE, _NO_STRINGS, np.empty(0, dtype=np.int32), _NONE, ())
"""Of a rank for which no other waited, or of which that is not known."""


@dataclass(frozen=True, slots=True)
class RankCollectives:
    """The collectives that no rank can leave before every rank has come, on one rank.

    The first five columns have a row for each collective; those of ``launch_...`` one for each of
    its launches, collective after collective, those of ``exposed_...`` one for each part of a
    launch in which its device ran nothing else. All times are of the rank's wall clock.

    Attributes:
        rank: the rank.
        group: the process group, with its ranks where these are told.
        what: what it does, as torch calls it; where torch gave it no number, a digest of what all
            collectives of the group and step do.
        number: its number in the group; where torch gave it none, its place in group and step.
        step: of those without a number the step, of others -1.
        ranks: how many ranks the group has; -1 where that is not told.
        launch: row in ``Launches``.
        launch_collective: the collective that it is of.
        launch_device: the device.
        launch_start_ns: when it began.
        launch_duration_ns: how long it took.
        exposed_launch: index of the launch, among these.
        exposed_start_ns: from when the device ran nothing else.
        exposed_end_ns: until when.
        begin_ns: when the first step began; ``None`` where there is none.
    """

    rank: int
    group: Interned
    what: Interned
    number: Ints
    step: Codes
    ranks: Codes
    launch: Ints
    launch_collective: Codes
    launch_device: Codes
    launch_start_ns: Ints
    launch_duration_ns: Ints
    exposed_launch: Codes
    exposed_start_ns: Ints
    exposed_end_ns: Ints
    begin_ns: int | None

    def __len__(self) -> int:
        """Return the number of collectives."""
        return len(self.number)

    @property
    def nbytes(self) -> int:
        """How many bytes the columns take."""
        interned = (self.group.codes, self.what.codes)
        columns: tuple[npt.NDArray[Any], ...] = (
            *interned,
            self.number,
            self.step,
            self.ranks,
            self.launch,
            self.launch_collective,
            self.launch_device,
            self.launch_start_ns,
            self.launch_duration_ns,
            self.exposed_launch,
            self.exposed_start_ns,
            self.exposed_end_ns,
        )
        return sum(column.nbytes for column in columns)


SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Step:
    """One profiled step; the launches that the CPU enqueued between its two marks are its own.

    A CPU that does not wait for the device is done with a step long before the device is, so the
    marks do not bound what the device does for it: see ``attribution/trace/steps.py``.

    Attributes:
        number: as the trace has it.
        start_ns: when the devices were done with what was enqueued before the step.
        end_ns: when they were done with what was enqueued in it.
        cpu_start_ns: when the program began the step; on the CPU alone the same as its start.
        cpu_end_ns: when the program ended it.
    """

    number: int
    start_ns: int
    end_ns: int
    cpu_start_ns: int
    cpu_end_ns: int

    @classmethod
    def on_cpu(cls, number: int, start_ns: int, end_ns: int) -> Step:
        """Return a step whose marks bound it."""
        return cls(number, start_ns, end_ns, start_ns, end_ns)

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
        phase: a ``Phase``: the one with the largest share of its time.
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
class BreakdownRow:
    """One line of the ledger; the lines of a step and device add up to the step's wall time.

    Attributes:
        step: step number.
        device: device index.
        scope: a ``Scope``.
        level: a ``Level``; ``None`` of idle time.
        category: a ``BreakdownCategory``, or a gap's reason.
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
        idle: all time in which devices ran nothing, in pieces of one cause and place each.
        communication: the launches that communicate; how much of each was exposed, and, where
            several ranks are merged, how long it waited for the last rank.
        lateness: where several ranks are merged, what the device did while others waited for it.
        ledger: wall time of each step and device, by category.
        notes: sentences for a person: what was corrected, what is missing and the remedy.
        library_kernels: pairs of graph, and of call site and its device events' names, for the
            library calls of graphs whose replays were explained whole.
        derived: what tables worked out of it; a copy with other fields begins anew.
    """

    recording: Recording
    steps: tuple[Step, ...]
    launches: Launches
    places: tuple[Place, ...]
    shares: Shares
    idle: IdlePieces = NO_IDLE
    communication: Communication = NO_COMMUNICATION
    rank_delay: RankDelay = NO_RANK_DELAY
    ledger: tuple[BreakdownRow, ...] = ()
    notes: tuple[str, ...] = ()
    library_kernels: tuple[tuple[int, LibraryKernels], ...] = ()
    derived: Derived = field(default_factory=Derived, init=False, compare=False, repr=False)

    @property
    def launch_count(self) -> int:
        """How many launches the steps enqueued; what the trace has of before and after is more."""
        return int(np.count_nonzero(~np.ma.getmaskarray(self.launches.step)))

    @property
    def is_on_cpu(self) -> bool:
        """All that was launched ran on the CPU: no event of a device is in the trace."""
        return len(self.launches) > 0 and bool(np.ma.getmaskarray(self.launches.stream).all())

    @property
    def device_names(self) -> tuple[str, ...]:
        """The devices that something ran on, by the names in the trace, each once.

        A trace lists all devices of its machine, whether the program used them or not.
        """
        if self.is_on_cpu:
            return ("CPU",)
        used = set(self.launches.device.tolist())
        listed = self.recording.trace.devices
        own = [each for each in listed if each.id in used] or listed
        named = (each.name.strip() or f"device {each.id}, which has no name" for each in own)
        return tuple(dict.fromkeys(named))
