"""What a remedy would change at the peak: the timeline of a device without some of its blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.findings.facts import Facts, facts_of
from profiler_ext.findings.finding import Figure, FigureUnit
from profiler_ext.memory.blocks import NEVER
from profiler_ext.memory.peak import (
    AliveBlock,
    AllBlocks,
    all_blocks,
    makes_tensor,
    module_of,
)
from profiler_ext.records.analysis import Analysis, Step
from profiler_ext.records.events import Ints
from profiler_ext.records.memory import MemoryKind, MemoryRecord
from profiler_ext.records.vocabulary import Phase
from profiler_ext.rooflines.peaks import peak_of
from profiler_ext.rooflines.rooflines import REACHABLE_FRACTION


@dataclass(frozen=True, slots=True)
class Allocation:
    """A block on the device whose peak is looked at.

    ``born`` and ``freed`` are numbers of the device's events: it is counted after the one, and not
    after the other. Before the first event is 0.
    """

    block: AliveBlock
    born: int
    freed: int  # the number of events, where it outlives the recording
    born_ns: int
    held_bytes: int  # of the tensor that an owner has in it; the block's where none is known
    row: int  # innermost CPU event around its allocation, or ``NO_ROW``
    held_in: frozenset[str] = frozenset()  # modules of its owners: of a tied weight several

    @property
    def size_bytes(self) -> int:
        """The block's bytes."""
        return self.block.size_bytes

    @property
    def kind(self) -> MemoryKind:
        """What it is."""
        return self.block.kind

    @property
    def phase(self) -> Phase:
        """The phase in which it was allocated."""
        return self.block.place.phase

    @property
    def module(self) -> str:
        """The module that allocated it, or holds it; ``""`` where none is known."""
        return self.block.place.module or ""

    def is_of(self, module: str) -> bool:
        """Tell whether a module allocated it, or is one of those that hold it."""
        return module == self.module or module in self.held_in


class Remedied:
    """The timeline with changes: blocks that go, come later, or become smaller."""

    def __init__(self, facts: MemoryFacts) -> None:
        self._facts = facts
        self._changes = np.zeros(len(facts.live) + 1, np.int64)
        self._moments: list[tuple[int, int]] = []

    def remove(
        self, allocation: Allocation, begin: int | None = None, end: int | None = None
    ) -> None:
        """Take a block out, from one event to another; from its birth to its end by default."""
        self.add(-allocation.size_bytes, allocation.born if begin is None else begin,
                 allocation.freed if end is None else end)  # fmt: skip

    def shrink(self, allocation: Allocation, to_bytes: int) -> None:
        """Make a block smaller."""
        self.add(to_bytes - allocation.size_bytes, allocation.born, allocation.freed)

    def add(self, size_bytes: int, begin: int, end: int) -> None:
        """Add bytes, from one event to another."""
        if begin < end:
            self._changes[begin] += size_bytes
            self._changes[end] -= size_bytes

    def add_moment(self, size_bytes: int, at: int) -> None:
        """Add bytes that are there for a moment right after an event."""
        self._moments.append((size_bytes, at))

    @property
    def live(self) -> Ints:
        """The bytes alive after each event."""
        changed: Ints = self._facts.live + np.cumsum(self._changes)[:-1]
        return changed

    @property
    def peak_bytes(self) -> int:
        """The peak of the recorded steps."""
        live = self.live
        moments = (int(live[at]) + size for size, at in self._moments if self._facts.in_steps[at])
        return max(int(live[self._facts.in_steps].max()), *moments, 0)


class MemoryFacts:
    """What rules read of a session with a memory record, on the device that has the largest peak.

    Args:
        analysis: the session's.
        record: its memory.
    """

    def __init__(self, analysis: Analysis, record: MemoryRecord) -> None:
        self.analysis, self.record = analysis, record
        self.times: Facts = facts_of(analysis)
        self._all: AllBlocks = all_blocks(analysis, record)
        self.device = max(self._all.timeline.devices, key=self._peak_of)

    def _peak_of(self, device: int) -> int:
        peaks = (self._all.timeline.peak(step, device) for step in self.analysis.steps)
        return max((each.peak_bytes for each in peaks), default=0)

    @cached_property
    def live(self) -> Ints:
        """The bytes alive before the first event, and after each."""
        return np.array(self._all.timeline.live(self.device)[0], np.int64)

    @cached_property
    def times_ns(self) -> Ints:
        """When each of them was."""
        return np.array(self._all.timeline.live(self.device)[1], np.int64)

    @cached_property
    def step_bounds(self) -> tuple[tuple[int, int], ...]:
        """The first event and the one after the last of each step; the first is before it."""
        return tuple(map(self._bounds, self.analysis.steps))

    def _bounds(self, step: Step) -> tuple[int, int]:
        first = int(np.searchsorted(self.times_ns, step.cpu_start_ns, side="left"))
        last = int(np.searchsorted(self.times_ns, step.cpu_end_ns, side="right"))
        return max(first - 1, 0), max(last, 1)

    @cached_property
    def in_steps(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of the events are of recorded steps."""
        own = np.zeros(len(self.live), np.bool_)
        for first, last in self.step_bounds:
            own[first:last] = True
        return own

    @cached_property
    def peak_bytes(self) -> int:
        """The largest peak of the recorded steps."""
        return int(self.live[self.in_steps].max())

    @cached_property
    def peak_at(self) -> int:
        """The event that makes it, the first one."""
        return int(np.argmax(np.where(self.in_steps, self.live, -1)))

    @cached_property
    def allocations(self) -> tuple[Allocation, ...]:
        """All blocks of the device."""
        last = len(self.live)
        own = zip(self._all.timeline.blocks, self._all.described, self._all.born, strict=True)
        return tuple(
            Allocation(each, block.born_at, last if block.freed_at == NEVER else block.freed_at,
                 block.born_ns, block.held_bytes or block.size_bytes, birth.row,
                 frozenset(filter(None, map(module_of, block.owners))))
            for block, each, birth in own
            if block.device == self.device
        )  # fmt: skip

    @property
    def uses_graph_pools(self) -> bool:
        """Whether CUDA graphs are replayed, or have pools: what is in them is not counted."""
        replays = self.times.pace.replayed[self.times.launches.in_steps].any()
        return bool(replays) or any(self.record.base.pool) or any(self.record.history.pool)

    def is_allocated_by(self, allocation: Allocation, ops: tuple[str, ...]) -> bool:
        """Tell whether an op of one of these names allocates a block, within another or not."""
        if (allocation.block.place.aten_op or "").startswith(ops):
            return True
        names = self.analysis.recording.trace.events.name
        return any(names[row].startswith(ops) for row in self.rows_around(allocation))

    def rows_around(self, allocation: Allocation) -> Iterator[int]:
        """Yield the CPU events around a block's allocation, the innermost first."""
        row = allocation.row
        while row != NO_ROW:
            yield row
            row = int(self._all.births.nesting.parent[row])

    @cached_property
    def _births(self) -> Ints:
        return np.array(sorted(each.born for each in self.allocations), np.int64)

    def next_birth(self, at: int) -> int:
        """Return the event of the first allocation after another."""
        after = int(np.searchsorted(self._births, at, side="right"))
        return int(self._births[after]) if after < len(self._births) else len(self.live)

    def at_peak(self, allocations: Iterable[Allocation]) -> int:
        """Return the bytes of those blocks that are alive at the peak."""
        return sum(
            each.size_bytes for each in allocations if each.born <= self.peak_at < each.freed
        )

    def of_kind(self, *kinds: MemoryKind) -> list[Allocation]:
        """Return the blocks of some kinds."""
        return [each for each in self.allocations if each.kind in kinds]

    def event_at(self, time_ns: int) -> int:
        """Return the last event that was not after a time."""
        return max(int(np.searchsorted(self.times_ns, time_ns, side="right")) - 1, 0)

    def peak_without(self, change: Callable[[Remedied], None]) -> int:
        """Return the peak of the recorded steps after a change."""
        remedied = Remedied(self)
        change(remedied)
        return remedied.peak_bytes

    @cached_property
    def _launches(self) -> dict[tuple[Phase, str], list[int]]:
        """The launches of each phase and module, and of those around it, in the CPU's order."""
        times, found = self.times, defaultdict[tuple[Phase, str], list[int]](list)
        rows = np.flatnonzero(times.in_steps(times.main_place >= 0))
        phases = {phase: times.launches.phase.where(phase) for phase in Phase}
        for row in rows[np.argsort(times.pace.enqueued_ns[rows], kind="stable")].tolist():
            phase = next(each for each, own in phases.items() if own[row])
            for path in prefixes(times.place(row).module or ""):
                found[phase, path].append(row)
        return found

    def launches_of(self, phase: Phase, path: str) -> Ints:
        """Return the launches of a phase in a module and its parts, in the order of the CPU."""
        return np.array(self._launches.get((phase, path), []), np.int64)

    @cached_property
    def _allocated(self) -> dict[str, list[Allocation]]:
        found = defaultdict[str, list[Allocation]](list)
        for allocation in self.allocations:
            for path in prefixes(allocation.module) if allocation.phase is Phase.FORWARD else ():
                found[path].append(allocation)
        return found

    def allocated_in(self, path: str) -> list[Allocation]:
        """Return what the forwards of a module and its parts allocate."""
        return self._allocated.get(path, [])

    def step_of(self, at: int) -> int | None:
        """Return which step an event is of, by its position."""
        step = int(self._steps[at]) if at < len(self._steps) else -1
        return None if step < 0 else step

    @cached_property
    def _steps(self) -> Ints:
        steps = np.full(len(self.live), -1, np.int64)
        for step, (first, last) in enumerate(self.step_bounds):
            steps[first + 1 : last] = step
        return steps

    def launches_until_made(self, allocation: Allocation, launches: Ints) -> Ints:
        """Return the launches up to those that write a block, of some in the CPU's order."""
        enqueued_ns, events = self.times.pace.enqueued_ns, self.analysis.recording.trace.events
        until = int(np.searchsorted(enqueued_ns[launches], allocation.born_ns, side="right")) + 1
        rows = self.rows_around(allocation) if allocation.block.place.graph is None else ()
        row = next((row for row in rows if not makes_tensor(events.name[row])), None)
        if row is not None:  # an op may launch several kernels for what it has allocated
            end_ns = events.end_at(row)
            ended = int(np.searchsorted(enqueued_ns[launches], end_ns, side="right"))
            until = max(until, ended)
        return launches[:until]

    def moving_ns(self, size_bytes: int) -> int:
        """Return how long the device takes to move bytes; 0 where its bandwidth is not known."""
        devices = self.analysis.recording.trace.devices
        name = next((each.name for each in devices if each.id == self.device), "")
        peak = peak_of(name)
        return 0 if peak is None else int(size_bytes / (REACHABLE_FRACTION * peak.gb_per_s))

    @cached_property
    def why_no_time(self) -> str:
        """Why it is not known how much longer a step takes; ``""`` where it is.

        Recording slows the CPU; by how much, steps before it tell.
        """
        training = self.times.training
        if training.is_known or training.cpu_ns <= self.times.busy_ns:
            return ""
        return "the CPU set the pace of the recording, and no steps before it were timed"

    def time_of(self, launches: Ints, checkpoints: float = 0) -> tuple[Figure, ...]:
        """Return what these launches take on the device, and why that is not said of a step."""
        took_ns = self.times.median_per_step(launches, self.times.launches.duration_ns[launches])
        took = Figure("on the device that takes", took_ns, FigureUnit.NS)
        why = self._why_no_price(self._repeated(launches), checkpoints)
        return (took, Figure("time of a step not known", why, FigureUnit.TEXT)) if why else (took,)

    def price_ns(
        self,
        launches: Ints,
        times: float = 1.0,
        *,
        are_larger: bool = False,
        checkpoints: float = 0,
    ) -> int | None:
        """Return how much longer a step takes that runs these launches again.

        ``None`` where that is not known; :meth:`time_of` says why.

        Args:
            launches: of recorded steps.
            times: how often they run again; below 0 where they no longer run.
            are_larger: they are not launched again, but do so much more.
            checkpoints: calls of ``torch.utils.checkpoint`` in a step that run them again.
        """
        more = self._repeated(launches, times, are_larger=are_larger)
        if self._why_no_price(more, checkpoints):
            return None
        busy_ns, cpu_ns = self.times.busy_ns, self.times.training.cpu_ns
        after_ns = max(busy_ns + more.on_device_ns, cpu_ns + more.on_cpu_ns)
        return int(after_ns - max(busy_ns, cpu_ns))

    def _repeated(
        self, launches: Ints, times: float = 1.0, *, are_larger: bool = False
    ) -> _Repeated:
        facts = self.times
        cost_ns = np.where(facts.pace.replayed, 0, facts.pace.cost_ns) / facts.training.slowdown
        on_device_ns, on_cpu_ns = (
            times * facts.median_per_step(launches, each[launches])
            for each in (facts.launches.duration_ns, cost_ns.astype(np.int64))
        )
        count = facts.launches_per_step(launches)
        return _Repeated(on_device_ns, 0 if are_larger else on_cpu_ns, count)

    def _why_no_price(self, more: _Repeated, checkpoints: float = 0) -> str:
        training, busy_ns = self.times.training, self.times.busy_ns
        on_cpu_ns = more.on_cpu_ns + more.checkpointing_ns(checkpoints)
        is_late = training.cpu_ns + on_cpu_ns > busy_ns + more.on_device_ns
        if self.why_no_time or not is_late:
            return self.why_no_time
        if checkpoints:
            return "the CPU may set the pace then: torch.utils.checkpoint keeps it busy, too"
        # Steps before that the device fills show only that the CPU is fast enough for these
        is_unknown = training.is_device_bound
        return "the CPU may set the pace then, and its speed is not known" if is_unknown else ""


@dataclass(frozen=True, slots=True)
class _Repeated:
    """What launches that run again take in a step; below 0 where they no longer run."""

    on_device_ns: float
    on_cpu_ns: float
    launches: float

    def checkpointing_ns(self, calls: float) -> float:
        """Return what ``torch.utils.checkpoint`` itself takes the CPU, at most."""
        return calls * _CHECKPOINT_NS + self.launches * _CHECKPOINTED_LAUNCH_NS if calls else 0


_CHECKPOINT_NS, _CHECKPOINTED_LAUNCH_NS = 3_000_000, 60_000
"""At most, of the CPU, for a call and each launch in it, beside the launches themselves.

On the host of an H100 six eager models fitted 1.5 ms and 40 us: its hooks see each saved tensor.
"""


def memory_facts(analysis: Analysis) -> MemoryFacts | None:
    """Return the facts of a session's memory, once; none where it has no record or no step."""
    record = analysis.recording.memory
    if record is None or not analysis.steps:
        return None
    facts: MemoryFacts | None = analysis.derived.once(
        "memory facts", lambda: _facts(analysis, record)
    )
    return facts


def _facts(analysis: Analysis, record: MemoryRecord) -> MemoryFacts | None:
    facts = MemoryFacts(analysis, record) if record.events.time_ns else None
    return facts if facts is not None and facts.allocations else None


def prefixes(module: str) -> Iterator[str]:
    """Yield the paths of a module and of those around it, the outermost first."""
    parts = module.split(".") if module else []
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def largest(allocations: Sequence[Allocation]) -> Allocation | None:
    """Return the largest block that has a line, or else the largest."""
    lined = [each for each in allocations if each.block.place.line is not None] or allocations
    return max(lined, key=lambda each: each.size_bytes, default=None)
