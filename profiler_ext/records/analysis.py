"""Owns the result of attribution: launches, places, shares, steps, idle spans, the ledger.

Many launches point at few places, so places are records and launches and shares are columns.
Durations are integer nanoseconds; the shares of a launch add up to it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from profiler_ext.records.communication import (
    NO_COMMUNICATION,
    NO_RANK_DELAY,
    Communication,
    RankDelay,
)
from profiler_ext.records.derived import Derived
from profiler_ext.records.events import Codes, Interned, Ints, MaskedInts
from profiler_ext.records.idle import NO_IDLE, IdlePieces
from profiler_ext.records.places import Place
from profiler_ext.records.provenance import LibraryKernels
from profiler_ext.records.recording import Recording

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
        """Return a step whose marks bound it.

        Args:
            number: as the trace has it.
            start_ns: when the program began the step.
            end_ns: when it ended it.
        """
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
