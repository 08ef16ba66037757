"""What is alive at the peak of each step: each block's kind, its line and module, and its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.attribution.trace.launches import find_launches
from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.kineto.classify import is_copy
from profiler_ext.kineto.communication import is_communication
from profiler_ext.memory.births import Birth, Births, rounds_to
from profiler_ext.memory.blocks import NEVER, Block, Owner, Peak, Timeline, peaks
from profiler_ext.memory.lives import Life, Lives, Moment
from profiler_ext.memory.reserved import graph_pool, rounding_at, unused_at
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.events import Device
from profiler_ext.records.memory import (
    UNSEEN_HOLDER,
    BirthEvidence,
    MemoryGap,
    MemoryKind,
    MemoryRecord,
    OwnerKind,
    UnusedRow,
)
from profiler_ext.records.vocabulary import Phase

_HELD = (
    (OwnerKind.PARAMETER, MemoryKind.PARAMETERS),
    (OwnerKind.GRADIENT, MemoryKind.GRADIENTS),
    (OwnerKind.OPTIMIZER_STATE, MemoryKind.OPTIMIZER),
    (OwnerKind.BUFFER, MemoryKind.BUFFERS),
    (OwnerKind.BUCKET, MemoryKind.COMMUNICATION),
    (OwnerKind.SAVED, MemoryKind.SAVED),
)
_BACKWARD = (Phase.BACKWARD, Phase.RECOMPUTE, Phase.GRADIENT_ACCUMULATION)
_NO_PLACE = Place()
_NO_LIFE = Life()


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
    life: Life = _NO_LIFE  # why it is still allocated

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
    # What else the device has in use then; ``None`` where the segments were not recorded
    unused: tuple[UnusedRow, ...] | None = None
    rounding_bytes: int | None = None  # of the blocks, where the allocator told it


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
    kinds, lives = _Kinds(births), Lives(births, blocks)
    return tuple(
        replace(
            _step_peak(each, born, kinds, lives),
            unused=unused_at(record, each),
            rounding_bytes=rounding_at(record, each),
        )
        for each in found
    )


def _step_peak(peak: Peak, born: dict[int, Birth], kinds: _Kinds, lives: Lives) -> StepPeak:
    last = next((each for each in peak.blocks if each.born_ns == peak.time_ns), None)
    at = Moment(peak.time_ns)
    if last is not None:
        at = Moment(peak.time_ns, born[id(last)].marker, born[id(last)].site)
    alive = []
    for block in peak.blocks:
        one = kinds.alive(block, born[id(block)])
        alive.append(replace(one, life=lives.of(block, born[id(block)], one.kind, at)))
    if peak.unseen_bytes:
        alive.append(AliveBlock(MemoryKind.OTHER, peak.unseen_bytes, Place(gap=MemoryGap.UNSEEN)))
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
        owners = _named(block.owners)
        library = None if owners else self._births.library(block)
        kind = library[0] if library else self._kind(block, birth)
        place = birth.place
        if block.is_older and block.owners:
            place = replace(place, gap=MemoryGap.HELD_BY_NAME)
        if owners and place.module is None:
            module = module_of(owners[0])
            place = replace(place, module=module)
        is_bounded = not block.is_older and block.freed_ns != NEVER
        return AliveBlock(
            kind,
            block.size_bytes,
            place,
            library[1] if library else _name_of(block, owners) or self._pool(block),
            birth.kernel,
            birth.buffer,
            BirthEvidence.OWNER if block.is_older and block.owners else birth.evidence,
            block.freed_ns - block.born_ns if is_bounded else None,
        )

    def _pool(self, block: Block) -> str:
        return graph_pool(self._births.record, block.pool)

    def _kind(self, block: Block, birth: Birth) -> MemoryKind:
        held = {each.kind for each in block.owners}
        for owner, kind in _HELD:
            if owner in held:
                return kind
        if self._pool(block):
            return MemoryKind.GRAPH_POOLS
        if is_communication(birth.place.aten_op or ""):
            return MemoryKind.COMMUNICATION
        if block.is_older:
            return MemoryKind.BATCH if block.saved_by else _held_or_other(block)
        if birth.is_workspace or self._is_scratch(block, birth):
            return MemoryKind.WORKSPACES
        kind = self._kind_by_life(block, birth)
        if kind is MemoryKind.OTHER and block.saved_by:
            return MemoryKind.SAVED if birth.place.phase is Phase.FORWARD else MemoryKind.BATCH
        # Inductor computes in the forward what torch calls a part of the backward.
        is_saved = self._is_saved(birth) and kind in (MemoryKind.OTHER, MemoryKind.TEMPORARIES)
        if is_saved:
            return MemoryKind.SAVED
        return _held_or_other(block) if kind is MemoryKind.OTHER else kind

    def _is_saved(self, birth: Birth) -> bool:
        """Tell whether a compiled forward hands a block to its backward."""
        graph, values = birth.place.graph, self._births.values
        return graph is not None and any(values.is_saved(graph, each) for each in birth.buffers)

    def _is_of_cublas(self, block: Block) -> bool:
        """Tell whether a block has the size of a cuBLAS workspace, and no tensor holds it."""
        is_held = bool(block.owners) or not block.is_older or block.pool != 0
        return not is_held and rounds_to(
            self._workspace_bytes.get(block.device, block.size_bytes + 1), block.size_bytes
        )

    def _is_scratch(self, block: Block, birth: Birth) -> bool:
        """Tell whether the op that allocated it itself frees it before it has returned."""
        row = birth.row
        if row == NO_ROW or not self._enclosing.is_op[row] or makes_tensor(self._events.name[row]):
            return False
        return block.freed_ns <= self._events.end_at(row)

    def _kind_by_life(self, block: Block, birth: Birth) -> MemoryKind:
        phase, row = birth.place.phase, self._births.row_of_free(block)
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
    return workspace_bytes(dict(device.properties).get("computeMajor", ""))


def workspace_bytes(major: str) -> int:
    """Return the size of a cuBLAS workspace, unless the program sets another.

    Source: ``aten/src/ATen/cuda/CUDABlas.cpp`` and ``CublasHandlePool.cpp``,
    ``parseChosenWorkspaceSize``.

    Args:
        major: the first number of the device's compute capability.
    """
    return 8 * 4096 * _KIB if major in ("9", "10") else (2 * 4096 + 8 * 16) * _KIB


_MAKES_TENSOR = ("aten::empty", "aten::resize", "aten::new_empty", "aten::set_")


def makes_tensor(op: str) -> bool:
    """Tell whether an op only gives other ops their tensors."""
    return op.startswith(_MAKES_TENSOR)


def _named(owners: Sequence[Owner]) -> tuple[Owner, ...]:
    return tuple(each for each in owners if each.kind is not OwnerKind.TENSOR)


def _held_or_other(block: Block) -> MemoryKind:
    is_held = bool(block.held_by) or bool(block.owners)
    return MemoryKind.HELD if is_held else MemoryKind.OTHER


def _name_of(block: Block, owners: Sequence[Owner]) -> str:
    """Return the name of the owner; of a tensor from before the recording the variable's."""
    held = [each.name for each in block.held_by if each.name != UNSEEN_HOLDER]
    if block.is_older and not owners and held:
        return held[0]
    return _names(owners or block.owners)


def _names(owners: Sequence[Owner]) -> str:
    """Return the first name, and how many more there are."""
    names = list(dict.fromkeys(each.name for each in owners))
    return "" if not names else names[0] + (f" (+{len(names) - 1})" if len(names) > 1 else "")


def module_of(owner: Owner) -> str | None:
    """Return the path of the module that holds a parameter, by its name."""
    if owner.kind is OwnerKind.SAVED:
        return None
    name = owner.name.rpartition(" of ")[2]
    return None if " " in name else name.rpartition(".")[0]
