"""The result of attribution: launches, places, shares, steps, idle time, communication.

Device time of a collective is *exposed* where the device ran nothing else, else *overlapped*. Where
several ranks are merged on aligned clocks, a rank *waits* from its own start of a collective to the
last rank's; the rest is the transfer.

Many launches have few places, so places are records, and launches and shares are columns. Durations
are integer nanoseconds; the shares of a launch add up to it exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from profiler_ext.records import lineage, provenance, vocabulary
from profiler_ext.records.events import Codes, Interned, Ints, MaskedInts
from profiler_ext.records.recording import Recording

_T = TypeVar("_T")
_NOTHING = np.empty(0, dtype=np.int64)
_NO_TEXTS = Interned(np.empty(0, dtype=np.int32), ())
_NO_CODES = np.empty(0, dtype=np.int32)
_UNKNOWN = np.ma.MaskedArray(_NOTHING, mask=np.empty(0, dtype=np.bool_))
# Of tables; in 1 some columns had other names (docs/tables.md)
SCHEMA_VERSION = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where a share of a launch belongs: an FX node (or an eager ATen op), or a gap."""

    graph: int | None = None  # index into ``Recording.graphs``, ``None`` outside compiled graphs
    node: str | None = None  # FX node name; ``None`` for eager ops and gaps
    aten_op: str | None = None  # ``aten.addmm.default``, or ``aten::add_`` for an eager op
    seq_nr: int | None = None  # torch's trace-time number
    phase: vocabulary.Phase = vocabulary.Phase.OTHER
    autograd_backward: bool | None = None  # torch's tag
    forward_node: str | None = None  # name in the joint graph of the forward node
    # A ``ForwardEvidence``; ``None`` for work that differentiates nothing
    forward_evidence: str | None = None
    # Innermost frame of the model
    file: str | None = None
    line: int | None = None
    function: str | None = None
    code: str | None = None
    # Innermost frame under the user's roots
    user_file: str | None = None
    user_line: int | None = None
    # Of a graph that runs inside an op of another graph's call, the model's frame of that op
    caller_file: str | None = None
    caller_line: int | None = None
    stack: tuple[lineage.Frame, ...] = ()  # the whole stack, outermost first
    # Path from the user's model, ``layers.7.mlp``; ``""`` is the model itself
    module: str | None = None
    module_class: str | None = None  # class of that module
    annotation: str | None = None  # the user's own labels
    level: vocabulary.Level = vocabulary.Level.NONE  # how precisely it is attributed
    evidence: str | None = None  # the source of the line
    # A compiled node's ``Mechanism``; ``None`` for eager work and older recordings
    mechanism: str | None = None
    gap: str | None = None  # why there is no line, or no place at all
    is_phase_corrected: bool = False  # torch's backward tag leaked onto this forward node


class Derived:
    """Values by name, each made on first use."""

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

    The pieces of a step and device do not overlap, and add up to the breakdown's idle time; where
    steps overlap, a moment belongs to the step that began last.
    """

    step: Ints
    device: Ints
    span: Ints  # number of the idle span between two launches that it is a piece of
    start_ns: Ints
    duration_ns: Ints
    cause: Interned  # an ``IdleCause``
    # Index into ``places``: where the thread that runs the steps was; where a compiled graph or a
    # node of autograd waited, the line of that wait
    place: Codes
    cause_place: Codes  # the same, of the cause: after a synchronisation the line that waited
    cpu_activity: Interned  # the innermost CPU event that covers most of it, or ``""``
    places: tuple[Place, ...]  # targets of these indices; one without a line has a gap

    def __len__(self) -> int:
        return len(self.start_ns)

    def of_rows(self, chosen: npt.NDArray[np.bool_]) -> IdlePieces:
        """Return some of the pieces."""
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        own: dict[str, Any] = {
            name: column[chosen] for name, column in columns.items() if name != "places"
        }
        return replace(self, **own)


# Devices that were never idle
NO_IDLE = IdlePieces(
    *(_NOTHING,) * 5, _NO_TEXTS, _NO_CODES, _NO_CODES, cpu_activity=_NO_TEXTS, places=()
)


@dataclass(frozen=True, slots=True)
class Communication:
    """One row for each launch that communicates, in the order of the launches."""

    launch: Ints  # row in ``Launches``
    collective: Interned  # torch's name, ``allreduce``; ``""`` where unknown
    process_group: Interned  # the group; ``""`` where unknown
    exposed_ns: Ints  # time in which the device ran nothing else, also outside of the steps
    # Wait for the last rank of the group; masked where a rank is unknown, or the collective may
    # begin without it
    waiting_ns: MaskedInts
    # If this rank was last, how long another had nothing to run but the wait, of the one that
    # waited longest; else 0, masked as ``waiting_ns``
    late_ns: MaskedInts

    def __len__(self) -> int:
        return len(self.launch)


@dataclass(frozen=True, slots=True)
class RankDelay:
    """What made a rank late for a collective while another had nothing to do but wait for it.

    An estimate: what this rank spent more time in than the other, since both were last level. The
    rows of a launch add up to its ``late_ns``.
    """

    launch: Ints  # row in ``Launches`` of the collective
    cause: Interned  # the ``IdleCause`` of idle time; ``""`` where the device ran something else
    place: Codes  # index into ``places``: of what it ran, or why it idled
    duration_ns: Ints  # the other rank's wait because of that
    places: tuple[Place, ...]

    def __len__(self) -> int:
        return len(self.launch)


# Of devices that run no collective
NO_COMMUNICATION = Communication(_NOTHING, _NO_TEXTS, _NO_TEXTS, _NOTHING, _UNKNOWN, _UNKNOWN)
# Of a rank for which no other waited, or of which that is not known
NO_RANK_DELAY = RankDelay(_NOTHING, _NO_TEXTS, _NO_CODES, _NOTHING, ())


@dataclass(frozen=True, slots=True)
class RankCollectives:
    """The collectives of one rank that no rank can leave before every rank has come.

    The first five columns have a row for each collective, those of ``launch_...`` one for each of
    its launches, those of ``exposed_...`` one for each part of a launch in which its device ran
    nothing else. Times are of the rank's wall clock. Compact, so that a thousand ranks fit into one
    process.
    """

    rank: int
    group: Interned  # the process group, with its ranks where known
    # Torch's name; where torch gave it no number, a digest of all collectives of the group and step
    what: Interned
    number: Ints  # its number in the group; without torch's, its position in group and step
    step: Codes  # the step of those without a number, else -1
    ranks: Codes  # size of the group; -1 where unknown
    launch: Ints  # row in ``Launches``
    launch_collective: Codes  # index of the collective
    launch_device: Codes
    launch_start_ns: Ints
    launch_duration_ns: Ints
    exposed_launch: Codes  # index of the launch, among these
    # The part in which the device ran nothing else
    exposed_start_ns: Ints
    exposed_end_ns: Ints
    begin_ns: int | None  # begin of the first step, if any

    def __len__(self) -> int:
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


@dataclass(frozen=True, slots=True)
class Step:
    """One profiled step, with the launches that the CPU enqueued between its two marks.

    The CPU may finish a step long before the device does, so the marks do not bound the device's
    work: see ``attribution/trace/steps.py``.
    """

    number: int
    start_ns: int  # when the devices finished what was enqueued before the step
    end_ns: int  # when they finished what was enqueued in it
    cpu_start_ns: int  # when the program began the step; on the CPU alone the same as its start
    cpu_end_ns: int  # when the program ended it

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
    """One row for each device event (on a CPU-only run: each C++ kernel and top-level ATen op)."""

    event: Ints  # row in ``Events``
    step: MaskedInts  # step number; masked outside the profiled steps
    name: Interned
    kernel: Interned  # Inductor's kernel name; ``""`` for other launches
    kind: Interned  # a ``LaunchKind``
    scope: Interned  # a ``Scope``: in a call of a compiled graph or not
    device: Ints  # device index; 0 for the CPU
    stream: MaskedInts  # masked on the CPU
    start_ns: Ints
    duration_ns: Ints
    phase: Interned  # the ``Phase`` with the largest share of its time
    graph: MaskedInts  # index into ``Recording.graphs``; masked outside compiled graphs
    call_site: MaskedInts  # ordinal of the call site in its graph, or masked
    op_event: MaskedInts  # row of the innermost CPU op that launched it; masked when unknown
    # Of eager backward work, the launch of the forward op, if known from its lines
    forward: MaskedInts
    correlation: MaskedInts
    external_id: MaskedInts
    level: Interned  # the ``Level`` of the largest share
    evidence: Interned  # a ``SiteEvidence``, or ``""``
    mechanism: Interned  # the ``Mechanism`` of the largest share's line, or ``""``
    gap: Interned  # a ``GapReason``, or ``""``
    share_evidence: Interned  # a ``ShareEvidence``, or ``""`` where it has one place

    def __len__(self) -> int:
        return len(self.event)

    @property
    def in_steps(self) -> npt.NDArray[np.bool_]:
        """Which launches belong to a profiled step."""
        return ~np.ma.getmaskarray(self.step)

    @property
    def kernel_or_name(self) -> Interned:
        """Inductor's name of each kernel; the event's where Inductor launched nothing."""
        kernel, name = self.kernel, self.name
        codes = np.where(kernel.where(""), name.codes + len(kernel.strings), kernel.codes)
        return Interned(codes.astype(np.int32), (*kernel.strings, *name.strings))


@dataclass(frozen=True, slots=True)
class Shares:
    """Which part of which launch belongs to which place; sorted by launch."""

    launch: Ints  # row in ``Launches``
    place: Codes  # index into ``Analysis.places``
    duration_ns: Ints  # the part; the parts of a launch add up to its duration

    def __len__(self) -> int:
        return len(self.launch)


@dataclass(frozen=True, slots=True)
class BreakdownRow:
    """One row of the step time breakdown; the rows of a step and device add up to its wall time."""

    step: int
    device: int
    scope: str
    level: str | None  # a ``Level``; ``None`` for idle time
    category: str  # a ``BreakdownCategory``, or a gap's reason
    duration_ns: int  # wall time


@dataclass(frozen=True, slots=True)
class Analysis:
    """All results of attribution; every report and export is made from it.

    Attributes:
        lateness: where ranks are merged, what the device did while others waited for it.
    """

    recording: Recording
    steps: tuple[Step, ...]
    launches: Launches  # the launches in order of start time
    places: tuple[Place, ...]  # the places of shares
    shares: Shares
    # All time in which devices ran nothing, in pieces of one cause and place each
    idle: IdlePieces = NO_IDLE
    communication: Communication = NO_COMMUNICATION  # the launches that communicate
    rank_delay: RankDelay = NO_RANK_DELAY
    breakdown: tuple[BreakdownRow, ...] = ()  # wall time of each step and device, by category
    # Sentences for a person: what was corrected or is missing, and the remedy
    notes: tuple[str, ...] = ()
    # Of graphs whose replays were fully matched, pairs of graph, and of call site and its device
    # events' names
    library_kernels: tuple[tuple[int, provenance.LibraryKernels], ...] = ()
    # Values that tables computed; a copy with other fields starts empty
    derived: Derived = field(default_factory=Derived, init=False, compare=False, repr=False)

    @property
    def launch_count(self) -> int:
        """How many launches the steps enqueued; what the trace has of before and after is more."""
        return int(np.count_nonzero(self.launches.in_steps))

    @property
    def is_on_cpu(self) -> bool:
        """Whether everything ran on the CPU: the trace has no event of a device."""
        return len(self.launches) > 0 and bool(np.ma.getmaskarray(self.launches.stream).all())

    @property
    def device_names(self) -> tuple[str, ...]:
        """The distinct names of devices that ran something; the trace lists all of the machine."""
        if self.is_on_cpu:
            return ("CPU",)
        used = set(self.launches.device.tolist())
        listed = self.recording.trace.devices
        own = [each for each in listed if each.id in used] or listed
        named = (each.name.strip() or f"device {each.id}, which has no name" for each in own)
        return tuple(dict.fromkeys(named))
