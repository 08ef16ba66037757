"""The blocks of memory over time: each with its birth and its end, and the peak of each step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np

from profiler_ext.kineto.names import owners_reading
from profiler_ext.records.analysis import Step
from profiler_ext.records.events import Events, flag_rows
from profiler_ext.records.memory import (
    AT_END,
    CPU,
    NO_STACK,
    Holders,
    LifeEvidence,
    MemoryRecord,
    OwnerKind,
    Owners,
    SavedTensors,
)

BEFORE, NEVER = -(1 << 62), 1 << 62
_FIRST_READING = 0


@dataclass(frozen=True, slots=True)
class Owner:
    """What held a block, as it was read."""

    kind: OwnerKind
    name: str


@dataclass(frozen=True, slots=True)
class SavedBy:
    """A node of autograd that held a block when a backward began."""

    time_ns: int
    node: str
    number: int  # autograd's sequence number
    attribute: str
    # How many tensors it holds with and without a check of their versions, if a graph's
    counts: tuple[int, int]


@dataclass(frozen=True, slots=True)
class HeldBy:
    """A variable, attribute or container of the program that held a block."""

    name: str
    evidence: LifeEvidence


@dataclass(slots=True, eq=False)
class Block:
    """One allocation."""

    device: int
    address: int
    size_bytes: int
    born_ns: int  # ``BEFORE`` the recording
    born_on: int = 0  # the system's id of the thread
    freed_ns: int = NEVER
    freed_on: int = 0
    # Numbers of its device's events, from 1; 0 is before the first
    born_at: int = 0
    freed_at: int = NEVER
    held_bytes: int = 0  # of the storage that an owner has in it; the block may be longer
    stack: int = NO_STACK  # of the record
    pool: int = 0
    owners: tuple[Owner, ...] = ()
    saved_by: tuple[SavedBy, ...] = ()
    held_by: tuple[HeldBy, ...] = ()

    @property
    def is_older(self) -> bool:
        """Whether it was allocated before the recording."""
        return self.born_ns == BEFORE

    def add(self, holder: Owner | SavedBy | HeldBy) -> None:
        """Add something that held it, once."""
        if isinstance(holder, Owner) and holder not in self.owners:
            self.owners = (*self.owners, holder)
        elif isinstance(holder, SavedBy):
            self.saved_by = (*self.saved_by, holder)
        elif isinstance(holder, HeldBy) and holder not in self.held_by:
            self.held_by = (*self.held_by, holder)

    def is_alive(self, time_ns: int) -> bool:
        """Tell whether it is allocated at a time."""
        return self.born_ns <= time_ns < self.freed_ns


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak of a step on a device."""

    step: int
    device: int
    time_ns: int
    peak_bytes: int  # by the allocator's own count, where it keeps one
    blocks: tuple[Block, ...]  # those alive, the largest first
    unseen_bytes: int  # that the allocator counts, and no block has


class Timeline:
    """All blocks of a record, and the bytes alive after each event of a device."""

    def __init__(self, record: MemoryRecord, events: Events) -> None:
        self.blocks: list[Block] = []
        self._times: dict[int, list[int]] = defaultdict(list)
        self._live: dict[int, list[int]] = defaultdict(list)
        self._open: dict[tuple[int, int], Block] = {}
        self._begin(record)
        base: dict[int, int] = defaultdict(int)
        for block in self.blocks:
            base[block.device] += block.size_bytes
        self.base_bytes = dict(base)
        self._follow(record, base)
        self._hold(record, events)
        self._measure(record.owners)

    @property
    def devices(self) -> list[int]:
        """The devices that have memory, GPUs first."""
        return sorted({each.device for each in self.blocks}, key=lambda each: (each == CPU, each))

    def _begin(self, record: MemoryRecord) -> None:
        base = record.base
        stacks = base.stack or (NO_STACK,) * len(base.device)  # of ``PROFILER_EXT_MEMORY=oom``
        rows = zip(base.device, base.address, base.size_bytes, base.pool, stacks, strict=True)
        for device, address, size_bytes, pool, stack in rows:
            self._add(Block(device, address, size_bytes, BEFORE, stack=stack, pool=pool))
        # The CPU's allocator keeps no list: there the base is what Python holds.
        owners = record.owners
        held = zip(owners.reading, owners.device, owners.address, owners.size_bytes, strict=True)
        for reading, device, address, size_bytes in held:
            if reading == _FIRST_READING and device == CPU and (device, address) not in self._open:
                self._add(Block(device, address, size_bytes, BEFORE))

    def _add(self, block: Block) -> None:
        self.blocks.append(block)
        self._open[block.device, block.address] = block

    def _follow(self, record: MemoryRecord, base: dict[int, int]) -> None:
        stacks, live = Stacks(record), dict(base)
        events = record.events
        rows = zip(
            events.time_ns,
            events.thread,
            events.device,
            events.address,
            events.size_bytes,
            events.allocated_bytes,
            strict=True,
        )
        for time_ns, thread, device, address, size_bytes, counted_bytes in rows:
            stack, pool = stacks.of_event(device, address, size_bytes > 0)
            at = len(self._times[device]) + 1
            known = self._open.pop((device, address), None)
            if known is not None:
                known.freed_ns, known.freed_on, known.freed_at = time_ns, thread, at
                live[device] = live.get(device, 0) - known.size_bytes
            if size_bytes > 0:
                block = Block(device, address, size_bytes, time_ns, thread, stack=stack, pool=pool)
                block.born_at = at
                self._add(block)
                live[device] = live.get(device, 0) + size_bytes
            self._times[device].append(time_ns)
            self._live[device].append(live.get(device, 0) if device == CPU else counted_bytes)

    def _hold(self, record: MemoryRecord, events: Events) -> None:
        """Give each block those that held it at a reading."""
        moments = {_FIRST_READING: BEFORE, AT_END: NEVER - 1, **_moments(events)}
        by_address: dict[tuple[int, int], list[Block]] = defaultdict(list)
        for block in self.blocks:
            by_address[block.device, block.address].append(block)
        found = (*_owned(record.owners), *_saved(record.saved, moments), *_held(record.holders))
        for holder, reading, device, address in found:
            moment = moments.get(reading)
            for block in by_address[device, address]:
                if moment is not None and block.is_alive(moment):
                    block.add(holder)

    def peak(self, step: Step, device: int) -> Peak:
        """Return the peak of a step on a device."""
        times, live = self._times[device], self._live[device]
        first = int(np.searchsorted(times, step.cpu_start_ns, side="left"))
        last = int(np.searchsorted(times, step.cpu_end_ns, side="right"))
        base = self.base_bytes.get(device, 0)
        # What is alive when the step begins counts, too.
        values = [(live[at - 1] if at else base) for at in range(first, last + 1)]
        best = first + int(np.argmax(values))
        time_ns = times[best - 1] if best > first else step.cpu_start_ns
        # By the number of the event: several may have one time.
        alive = [b for b in self.blocks if b.device == device and b.born_at <= best < b.freed_at]
        alive.sort(key=lambda each: -each.size_bytes)
        peak_bytes = max(values)
        seen_bytes = sum(each.size_bytes for each in alive)
        return Peak(step.number, device, time_ns, peak_bytes, tuple(alive), peak_bytes - seen_bytes)

    def live(self, device: int) -> tuple[list[int], list[int]]:
        """Return the bytes alive before the first event of a device and after each; their times."""
        times = [BEFORE, *self._times[device]]
        return [self.base_bytes.get(device, 0), *self._live[device]], times

    def _measure(self, owners: Owners) -> None:
        """Give each block that has an owner the bytes of the storage in it."""
        sizes: dict[tuple[int, int], set[int]] = defaultdict(set)
        for *place, size_bytes in zip(
            owners.device, owners.address, owners.size_bytes, strict=True
        ):
            sizes[place[0], place[1]].add(size_bytes)
        for block in self.blocks:
            own = sizes.get((block.device, block.address), ()) if block.owners else ()
            block.held_bytes = max((each for each in own if each <= block.size_bytes), default=0)


class Stacks:
    """The stack of each allocation that the profiler saw, by the allocator's own history.

    Both list the same allocations and frees of a device in one order; the history has those of
    threads that the profiler does not record, too.
    """

    def __init__(self, record: MemoryRecord) -> None:
        history = record.history
        self._entries: dict[int, list[tuple[int, bool, int, int]]] = defaultdict(list)
        rows = zip(
            history.device,
            history.action,
            history.address,
            history.stack,
            history.pool,
            strict=True,
        )
        for device, action, address, stack, pool in rows:
            if action in ("alloc", "free_requested"):
                self._entries[device].append((address, action == "alloc", stack, pool))
        self._next: dict[int, int] = defaultdict(int)

    def of_event(self, device: int, address: int, is_alloc: bool) -> tuple[int, int]:
        """Return the stack and the pool of the next event of a device."""
        entries = self._entries.get(device, [])
        for at in range(self._next[device], len(entries)):
            if entries[at][:2] == (address, is_alloc):
                self._next[device] = at + 1
                return entries[at][2:]
        return NO_STACK, 0


_Held = Iterator[tuple[Owner | SavedBy | HeldBy, int, int, int]]
"""What holds something, at which reading, which device, which address."""


def _owned(owners: Owners) -> _Held:
    places = zip(owners.reading, owners.device, owners.address, strict=True)
    for kind, name, place in zip(owners.kind, owners.name, places, strict=True):
        yield Owner(kind, name), *place


def _saved(saved: SavedTensors, moments: Mapping[int, int]) -> _Held:
    counts = Counter(
        (*pair, name.startswith("saved_tensors["))
        for *pair, name in zip(saved.reading, saved.number, saved.attribute, strict=True)
        if name.startswith(("saved_tensors[", "_tensors_no_vc_check["))
    )
    places = zip(saved.reading, saved.device, saved.address, strict=True)
    rows = zip(saved.node, saved.number, saved.attribute, places, strict=True)
    for node, number, attribute, (reading, device, address) in rows:
        own = counts[reading, number, True], counts[reading, number, False]
        found = SavedBy(moments.get(reading, NEVER), node, number, attribute, own)
        yield found, reading, device, address


def _held(holders: Holders) -> _Held:
    for name, file, function, reading, device, address in zip(
        *(holders.name, holders.file, holders.function),
        *(holders.reading, holders.device, holders.address),
        strict=True,
    ):
        is_local = function not in ("", "<module>")
        where = f" of {function}" if is_local else f" of {PurePath(file).name}" if file else ""
        evidence = LifeEvidence.VARIABLE if file else LifeEvidence.REFERRER
        yield HeldBy(f"{name}{where}", evidence), reading, device, address


def _moments(events: Events) -> dict[int, int]:
    """Return when each reading of the owners was."""
    marks = np.flatnonzero(flag_rows(events.name, lambda each: owners_reading(each) is not None))
    return {_number(events.name[row]): events.end_at(row) for row in marks.tolist()}


def _number(name: str) -> int:
    number = owners_reading(name)
    assert number is not None
    return number


def peaks(timeline: Timeline, steps: Sequence[Step]) -> Iterator[Peak]:
    """Yield the peak of each step on each device."""
    for device in timeline.devices:
        for step in steps:
            yield timeline.peak(step, device)
