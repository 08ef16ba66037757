"""What is alive at the peak of each step: each block's kind, its line and module, and its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.attribution.trace.launches import find_launches
from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.kineto.classify import is_copy
from profiler_ext.kineto.communication import is_communication
from profiler_ext.memory.births import Birth, Births
from profiler_ext.memory.blocks import NEVER, Block, Owner, Peak, Timeline, peaks
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.events import Device
from profiler_ext.records.memory import (
    BirthEvidence,
    MemoryGap,
    MemoryKind,
    MemoryRecord,
    OwnerKind,
)
from profiler_ext.records.vocabulary import Phase

_HELD = (
    (OwnerKind.PARAMETER, MemoryKind.PARAMETERS),
    (OwnerKind.GRADIENT, MemoryKind.GRADIENTS),
    (OwnerKind.OPTIMIZER_STATE, MemoryKind.OPTIMIZER),
    (OwnerKind.BUFFER, MemoryKind.BUFFERS),
)
_BACKWARD = (Phase.BACKWARD, Phase.RECOMPUTE, Phase.GRADIENT_ACCUMULATION)
_NO_PLACE = Place()


@dataclass(frozen=True, slots=True)
class AliveBlock:
    """A block that is alive at a peak."""

    kind: MemoryKind
    size_bytes: int
    place: Place  # where it was allocated; its gap may be a ``MemoryGap``
    name: str = ""  # of what holds it, where that has one
    kernel: str = ""  # the call site's, of a compiled graph
    buffer: str = ""  # the wrapper's name
    evidence: BirthEvidence | None = None
    lifetime_ns: int | None = None  # unless it is older, or outlives the recording

    @property
    def has_source(self) -> bool:
        """Whether its line, or the name of what holds it, is known."""
        return self.place.line is not None or self.place.gap == MemoryGap.HELD_BY_NAME


@dataclass(frozen=True, slots=True)
class StepPeak:
    """The peak of a step on a device; the blocks add up to its bytes."""

    step: int
    device: int
    peak_bytes: int
    place: Place  # of the allocation that made the peak
    blocks: tuple[AliveBlock, ...]


def peaks_of(analysis: Analysis) -> tuple[StepPeak, ...]:
    """Return the peak of each step on each device; none where no memory was recorded."""
    record = analysis.recording.memory
    if record is None:
        return ()
    return analysis.derived.once("memory peaks", lambda: _peaks(analysis, record))


@dataclass(frozen=True, slots=True)
class AllBlocks:
    """Every block of a record, also those that are not alive at a peak."""

    timeline: Timeline
    births: Births
    born: tuple[Birth, ...]  # of ``timeline.blocks``
    described: tuple[AliveBlock, ...]  # the same


def all_blocks(analysis: Analysis, record: MemoryRecord) -> AllBlocks:
    """Return what every block of a record is."""
    timeline = Timeline(record, analysis.recording.trace.events)
    births = Births(analysis.recording, record)
    born = births.of(timeline.blocks, timeline.blocks)
    kinds = _Kinds(births)
    alive = (kinds.alive(*each) for each in zip(timeline.blocks, born, strict=True))
    return AllBlocks(timeline, births, tuple(born), tuple(alive))


def _peaks(analysis: Analysis, record: MemoryRecord) -> tuple[StepPeak, ...]:
    timeline = Timeline(record, analysis.recording.trace.events)
    found = [*peaks(timeline, analysis.steps)]
    births = Births(analysis.recording, record)
    blocks = list({id(each): each for peak in found for each in peak.blocks}.values())
    of_blocks = births.of(blocks, timeline.blocks)
    born = {id(block): birth for block, birth in zip(blocks, of_blocks, strict=True)}
    kinds = _Kinds(births)
    return tuple(_step_peak(each, born, kinds) for each in found)


def _step_peak(peak: Peak, born: dict[int, Birth], kinds: _Kinds) -> StepPeak:
    alive = [kinds.alive(each, born[id(each)]) for each in peak.blocks]
    if peak.unseen_bytes:
        alive.append(AliveBlock(MemoryKind.OTHER, peak.unseen_bytes, Place(gap=MemoryGap.UNSEEN)))
    last = next((each for each in peak.blocks if each.born_ns == peak.time_ns), None)
    place = _NO_PLACE if last is None else born[id(last)].place
    return StepPeak(peak.step, peak.device, peak.peak_bytes, place, tuple(alive))


class _Kinds:
    """Decides what each block is."""

    def __init__(self, births: Births) -> None:
        self._births, self._enclosing = births, births.enclosing
        self._events = births.enclosing.events
        rows = np.flatnonzero(self._enclosing.engine == np.arange(len(self._events)))
        self._backward_begins = np.sort(self._events.start_ns[rows])
        self._copying = self._rows_that_copy()
        devices = births.recording.trace.devices
        self._workspace_bytes = {each.id: _workspace_bytes(each) for each in devices}

    def _rows_that_copy(self) -> frozenset[int]:
        """Return the rows of ops within which something is copied from the host."""
        enqueued = find_launches(self._events, self._births.nesting)
        parent = self._births.nesting.parent
        rows: set[int] = set()
        for row, cpu in zip(enqueued.event.tolist(), enqueued.cpu.tolist(), strict=True):
            if is_copy(self._events.category[row]) and "HtoD" in self._events.name[row]:
                while cpu != NO_ROW and self._enclosing.is_op[cpu]:
                    rows.add(cpu)
                    cpu = int(parent[cpu])
        return frozenset(rows)

    def alive(self, block: Block, birth: Birth) -> AliveBlock:
        """Return a block with its kind and the name of what holds it."""
        if self._is_of_cublas(block):
            return _cublas_block(block.size_bytes, birth.place)
        kind, owners = self._kind(block, birth), _named(block.owners)
        place = birth.place
        if block.is_older and (owners or block.owners):
            place = replace(place, gap=MemoryGap.HELD_BY_NAME)
        if owners and place.module is None:
            module = _module(owners[0])
            place = replace(place, module=module)
        is_bounded = not block.is_older and block.freed_ns != NEVER
        return AliveBlock(
            kind,
            block.size_bytes,
            place,
            _names(owners or block.owners),
            birth.kernel,
            birth.buffer,
            BirthEvidence.OWNER if block.is_older and block.owners else birth.evidence,
            block.freed_ns - block.born_ns if is_bounded else None,
        )

    def _kind(self, block: Block, birth: Birth) -> MemoryKind:
        held = {each.kind for each in block.owners}
        for owner, kind in _HELD:
            if owner in held:
                return kind
        if block.pool > 0:
            return MemoryKind.GRAPH_POOLS
        if is_communication(birth.place.aten_op or ""):
            return MemoryKind.COMMUNICATION
        if block.is_older:
            return MemoryKind.OTHER
        if birth.is_workspace or self._is_scratch(block, birth):
            return MemoryKind.WORKSPACES
        return self._kind_by_life(block, birth)

    def _is_of_cublas(self, block: Block) -> bool:
        """Tell whether a block has the size of a cuBLAS workspace, and no tensor holds it."""
        is_held = bool(block.owners) or not block.is_older or block.pool != 0
        return not is_held and self._workspace_bytes.get(block.device) == block.size_bytes

    def _is_scratch(self, block: Block, birth: Birth) -> bool:
        """Tell whether the op that allocated it itself frees it before it has returned."""
        row = birth.row
        if row == NO_ROW or not self._enclosing.is_op[row] or makes_tensor(self._events.name[row]):
            return False
        return block.freed_ns <= self._events.end_at(row)

    def _kind_by_life(self, block: Block, birth: Birth) -> MemoryKind:
        phase, row = birth.place.phase, self._row_of_free(block)
        in_engine = row != NO_ROW and self._enclosing.engine[row] != NO_ROW
        if phase is Phase.FORWARD:
            if in_engine:
                return MemoryKind.SAVED
            at = int(np.searchsorted(self._backward_begins, block.born_ns))
            is_last = at == len(self._backward_begins)
            begins_ns = NEVER if is_last else int(self._backward_begins[at])
            is_gone = block.freed_ns < begins_ns
            return MemoryKind.TEMPORARIES if is_gone else MemoryKind.OTHER
        if phase in _BACKWARD and in_engine:
            return MemoryKind.TEMPORARIES
        if phase is Phase.OPTIMIZER and row != NO_ROW and self._enclosing.optimizer[row] != NO_ROW:
            return MemoryKind.TEMPORARIES
        if phase is Phase.OTHER and self._is_copied(birth.row):
            return MemoryKind.BATCH
        return MemoryKind.OTHER

    def _row_of_free(self, block: Block) -> int:
        if block.freed_ns == NEVER:
            return NO_ROW
        return self._births.rows.at(block.freed_on, block.freed_ns)

    def _is_copied(self, row: int) -> bool:
        parent = self._births.nesting.parent
        while row != NO_ROW and row not in self._copying:
            row = int(parent[row])
        return row != NO_ROW


def _cublas_block(size_bytes: int, place: Place) -> AliveBlock:
    return AliveBlock(
        MemoryKind.WORKSPACES,
        size_bytes,
        place,
        "cuBLAS",
        evidence=BirthEvidence.WORKSPACE_SIZE,
    )


_KIB = 1 << 10


def _workspace_bytes(device: Device) -> int:
    """Return the size of a cuBLAS workspace, unless the program sets another.

    Source: ``aten/src/ATen/cuda/CUDABlas.cpp`` and ``CublasHandlePool.cpp``,
    ``parseChosenWorkspaceSize``.
    """
    major = dict(device.properties).get("computeMajor", "")
    return 8 * 4096 * _KIB if major in ("9", "10") else (2 * 4096 + 8 * 16) * _KIB


_MAKES_TENSOR = ("aten::empty", "aten::resize", "aten::new_empty", "aten::set_")


def makes_tensor(op: str) -> bool:
    """Tell whether an op only gives other ops their tensors."""
    return op.startswith(_MAKES_TENSOR)


def _named(owners: Sequence[Owner]) -> tuple[Owner, ...]:
    return tuple(each for each in owners if each.kind is not OwnerKind.TENSOR)


def _names(owners: Sequence[Owner]) -> str:
    """Return the first name, and how many more there are."""
    names = list(dict.fromkeys(each.name for each in owners))
    return "" if not names else names[0] + (f" (+{len(names) - 1})" if len(names) > 1 else "")


def _module(owner: Owner) -> str | None:
    """Return the path of the module that holds a parameter, by its name."""
    name = owner.name.rpartition(" of ")[2]
    return None if " " in name else name.rpartition(".")[0]
