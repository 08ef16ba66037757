"""What was alive when an allocation failed, by kind, line and owner; its file is read here, too."""

from __future__ import annotations

import gzip
import linecache
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from profiler_ext.attribution.enclosing import CallContext
from profiler_ext.attribution.places import PlaceTable, SourceRoots
from profiler_ext.errors import TraceError
from profiler_ext.file_io import read_regular, replacing
from profiler_ext.kineto.source import shown
from profiler_ext.memory.births import Birth, StoredValues, allocated_by
from profiler_ext.memory.file import MAX_PACKED_BYTES, unpacked
from profiler_ext.memory.reserved import graph_pool, ranges_of, segments_of, unused_rows
from profiler_ext.records.analysis import Place
from profiler_ext.records.lineage import Frame
from profiler_ext.records.memory import (
    NO_STACK,
    AliveRow,
    AllocatorState,
    BirthEvidence,
    FailedAllocation,
    MemoryGap,
    MemoryKind,
    MemoryRecord,
    OutOfMemory,
    OwnerKind,
    StackFrame,
    UnusedKind,
    UnusedRow,
)
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.records.recording import GeneratedModule, Settings
from profiler_ext.records.stored import known

PREFIX, SUFFIX = "out_of_memory_", ".json.gz"
VERSION = 1
_LEVEL = 6
_OPTIMIZER, _ENGINE = "torch/optim/", "torch/autograd/graph.py"
HELD = {
    OwnerKind.PARAMETER: MemoryKind.PARAMETERS,
    OwnerKind.GRADIENT: MemoryKind.GRADIENTS,
    OwnerKind.OPTIMIZER_STATE: MemoryKind.OPTIMIZER,
    OwnerKind.BUFFER: MemoryKind.BUFFERS,
    OwnerKind.BUCKET: MemoryKind.COMMUNICATION,
    OwnerKind.SAVED: MemoryKind.SAVED,
}
"""The kind of what holds a block; the first decides."""


@dataclass(frozen=True, slots=True)
class Program:
    """What a process knows of its code."""

    settings: Settings
    graphs: Sequence[GraphInstance] = ()
    generated: Sequence[GeneratedModule] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """When and where an allocation failed, as its thread saw it."""

    device: int
    requested_bytes: int
    stack: tuple[StackFrame, ...]  # innermost first
    caller: tuple[StackFrame, ...] = ()
    autograd_node: str = ""

    @property
    def is_backward(self) -> bool:
        """Whether autograd's engine was running."""
        frames = (*self.stack, *self.caller)
        return bool(self.autograd_node) or any(_is_in(frames, _ENGINE))


def _is_in(stack: Iterable[StackFrame], path: str) -> Iterator[bool]:
    return (path in frame.file for frame in stack)


class _Origins:
    """Where blocks were allocated, by their Python stacks."""

    def __init__(self, program: Program) -> None:
        settings = program.settings
        self._graphs = program.graphs
        self._roots = SourceRoots(settings)
        places = PlaceTable(program.graphs, settings)
        self.values = StoredValues(program.graphs, program.generated, places)
        self._of_file: dict[str, list[int]] = defaultdict(list)
        for number, graph in enumerate(program.graphs):
            if graph.output_module:
                self._of_file[graph.output_module].append(number)

    def of(self, stack: Sequence[StackFrame], size_bytes: int) -> Birth:
        """Return the birth of a block: of a graph's call site, or of the model's line."""
        graphs = next((self._of_file[f.file] for f in stack if f.file in self._of_file), [])
        births = [*filter(None, (self._in_graph(each, stack, size_bytes) for each in graphs))]
        if births:
            lines = {(each.place.file, each.place.line) for each in births}
            is_same = len(lines) == 1 and len(births) == len(graphs)
            gap = Birth(Place(graph=graphs[0], gap=MemoryGap.NO_CALL_SITE))
            return births[0] if is_same else gap
        if not stack:
            return Birth(Place(gap=MemoryGap.NO_STACK))
        frames = tuple(Frame(f.file, f.line, f.function) for f in reversed(stack))
        place = self._roots.with_line(Place(), frames)
        if place.line is None:
            return Birth(replace(place, gap=MemoryGap.NO_OP))
        return Birth(place, BirthEvidence.PYTHON_STACK)

    def without_wrappers(self, stack: Sequence[StackFrame]) -> tuple[StackFrame, ...]:
        """Return a stack without the frames of generated code, for which a call site stands."""
        return tuple(frame for frame in stack if frame.file not in self._of_file)

    def _in_graph(self, number: int, stack: Sequence[StackFrame], size_bytes: int) -> Birth | None:
        graph = self._graphs[number]
        lines = (frame.line for frame in stack if frame.file == graph.output_module)
        statement = self.values.statement(graph, lines)
        if statement is None:
            return None
        birth = self.values.of_statement(number, CallContext(), statement, size_bytes)
        return birth and replace(birth, evidence=BirthEvidence.WRAPPER_LINE)


class _Rows:
    """The rows of what is alive."""

    def __init__(self, record: MemoryRecord, moment: Moment, program: Program) -> None:
        self._record, self._moment, self._program = record, moment, program
        self.origins = _Origins(program)
        self._stacks = [tuple(record.frames[at] for at in stack) for stack in record.stacks]
        self._owners: dict[int, list[tuple[OwnerKind, str]]] = defaultdict(list)
        owners = record.owners
        rows = zip(owners.kind, owners.name, owners.device, owners.address, strict=True)
        for kind, name, device, address in rows:
            if device == moment.device and (kind, name) not in self._owners[address]:
                self._owners[address].append((kind, name))

    def rows(self, workspace_bytes: int) -> Iterator[AliveRow]:
        """Yield a row of each block."""
        base = self._record.base
        is_workspace = self._workspaces(workspace_bytes)
        rows = zip(
            base.device,
            base.address,
            base.size_bytes,
            base.requested_bytes,
            base.pool,
            base.stack,
            strict=True,
        )
        for device, address, size_bytes, requested_bytes, pool, stack in rows:
            if device == self._moment.device:
                made = self._row(address, size_bytes, pool, stack)
                if address in is_workspace:
                    made = replace(
                        made,
                        kind=MemoryKind.WORKSPACES,
                        owner="cuBLAS",
                        evidence=BirthEvidence.WORKSPACE_SIZE,
                    )
                yield replace(made, requested_bytes=requested_bytes)

    def _workspaces(self, workspace_bytes: int) -> set[int]:
        """Return the blocks of cuBLAS: of its workspace's size, held by no tensor of Python.

        There is one for each thread that calls it and each stream: of more blocks of that size
        none can be told from a tensor that autograd holds.
        """
        base = self._record.base
        columns = (base.device, base.address, base.requested_bytes, base.pool, base.stream)
        rows = zip(*columns, strict=True)
        found: dict[int, list[int]] = defaultdict(list)
        for device, address, requested_bytes, pool, stream in rows:
            is_own = device == self._moment.device and not pool
            if is_own and requested_bytes == workspace_bytes and not self._owners.get(address):
                found[stream].append(address)
        threads = 2  # the program's, and autograd's of the device
        return {address for own in found.values() if len(own) <= threads for address in own}

    def _row(self, address: int, size_bytes: int, pool: int, number: int) -> AliveRow:
        stack = () if number == NO_STACK else self._stacks[number]
        birth, owners = self.origins.of(stack, size_bytes), self._owners.get(address, [])
        kinds = {kind for kind, _ in owners}
        first = next((kind for kind in HELD if kind in kinds), None)
        place, named = birth.place, [each for each in owners if each[0] is first]
        library = None if named else allocated_by(stack)
        owner = _names(named or owners) or graph_pool(self._record, pool)
        kind, owner = library or (self._kind(birth, stack, owners, pool), owner)
        evidence = BirthEvidence.LIBRARY_FRAME if library else birth.evidence
        if place.line is None and owners and not library:
            place = replace(place, gap=MemoryGap.HELD_BY_NAME)
            evidence = BirthEvidence.OWNER
        return AliveRow(
            kind,
            size_bytes,
            size_bytes,
            1,
            place.file,
            place.line,
            place.function,
            place.code or code_at(place.file, place.line),
            place.module,
            birth.kernel or None,
            owner or None,
            evidence,
            place.gap,
        )

    def _kind(
        self,
        birth: Birth,
        stack: Sequence[StackFrame],
        owners: Sequence[tuple[OwnerKind, str]],
        pool: int,
    ) -> MemoryKind:
        held = {kind for kind, _ in owners}
        first = next((kind for owner, kind in HELD.items() if owner in held), None)
        if first is not None:
            return first
        if graph_pool(self._record, pool):
            return MemoryKind.GRAPH_POOLS
        if birth.is_workspace:
            return MemoryKind.WORKSPACES
        if birth.place.graph is not None:
            return self._kind_in_graph(birth, birth.place.graph, bool(held))
        return self._kind_in_eager(stack, bool(held))

    def _kind_in_graph(self, birth: Birth, number: int, is_held: bool) -> MemoryKind:
        """Return the kind of a buffer: when its graph has returned, it is one of the results."""
        graph = self._program.graphs[number]
        if birth.buffer and self.origins.values.is_saved(number, birth.buffer):
            return MemoryKind.SAVED
        if any(frame.file == graph.output_module for frame in self._moment.stack):
            return MemoryKind.TEMPORARIES
        if is_held:
            return MemoryKind.HELD
        is_saved = graph.joint is not None and not graph.runs_backward
        return MemoryKind.SAVED if is_saved else MemoryKind.OTHER

    def _kind_in_eager(self, stack: Sequence[StackFrame], is_held: bool) -> MemoryKind:
        """Return the kind by the stack: what no tensor of Python holds is held by autograd."""
        if not stack and self._moment.is_backward and not (is_held or self._record.missing):
            return MemoryKind.TEMPORARIES  # of autograd's threads
        if not stack or is_held:
            return MemoryKind.HELD if is_held else MemoryKind.OTHER
        if any(_is_in(stack, _OPTIMIZER)) or any(_is_in(stack, _ENGINE)):
            return MemoryKind.TEMPORARIES
        is_of_failed_op = tuple(stack) == self._moment.stack
        return MemoryKind.TEMPORARIES if is_of_failed_op else MemoryKind.SAVED


def code_at(file: str | None, line: int | None) -> str | None:
    """Return the text of a line of a file, if it can be read."""
    return (linecache.getline(file, line).strip() or None) if file and line else None


def _names(owners: Sequence[tuple[OwnerKind, str]]) -> str:
    names = list(dict.fromkeys(name for _, name in owners))
    return "" if not names else names[0] + (f" (+{len(names) - 1})" if len(names) > 1 else "")


def _grouped(rows: Iterable[AliveRow]) -> tuple[AliveRow, ...]:
    """Return one row for all blocks that differ in size alone, the largest first."""
    groups: dict[AliveRow, list[AliveRow]] = defaultdict(list)
    for row in rows:
        groups[replace(row, size_bytes=0, requested_bytes=0, blocks=0)].append(row)
    summed = (
        replace(
            key,
            size_bytes=sum(each.size_bytes for each in own),
            requested_bytes=sum(each.requested_bytes for each in own),
            blocks=len(own),
        )
        for key, own in groups.items()
    )
    return tuple(sorted(summed, key=lambda each: -each.size_bytes))


def describe(
    record: MemoryRecord,
    moment: Moment,
    state: AllocatorState,
    program: Program,
    *,
    workspace_bytes: int,
    largest_free_bytes: int,
    other_processes_bytes: int | None,
    time_ns: int,
    process: int,
    number: int,
) -> OutOfMemory:
    """Return what was alive, from the allocator's blocks (``base``), segments and owners.

    Args:
        record: what was read when the allocation failed.
        moment: which allocation failed, and where.
        state: the allocator's counts then.
        program: the graphs and code of the process.
        workspace_bytes: of cuBLAS on the device.
        largest_free_bytes: the largest block that the allocator had free.
        other_processes_bytes: what other processes use of the device, if NVML tells.
        time_ns: wall clock.
        process: its id.
        number: of the report in this process.
    """
    rows = _Rows(record, moment, program)
    alive = _grouped(rows.rows(workspace_bytes))
    device = moment.device
    unused = unused_rows(
        segments_of(record, device),
        ranges_of(record.base, device),
        ranges_of(record.awaiting, device),
    )
    return OutOfMemory(
        time_ns,
        process,
        program.settings.rank,
        number,
        _failed(rows.origins, moment, largest_free_bytes),
        state,
        alive,
        (*unused, *_outside(state, other_processes_bytes)),
        program.settings.command,
        program.settings.user_roots,
        program.settings.library_roots,
        record.missing,
    )


def _outside(state: AllocatorState, others_bytes: int | None) -> Iterator[UnusedRow]:
    outside = state.device_used_bytes - state.reserved_bytes
    if others_bytes:
        yield UnusedRow(UnusedKind.OTHER_PROCESSES, others_bytes)
        outside -= others_bytes
    yield UnusedRow(UnusedKind.OUTSIDE, max(outside, 0))


def _failed(origins: _Origins, moment: Moment, largest_free_bytes: int) -> FailedAllocation:
    birth = origins.of(moment.stack, moment.requested_bytes)
    place = birth.place
    if place.line is None and moment.caller:
        place = origins.of(moment.caller, moment.requested_bytes).place
    return FailedAllocation(
        moment.device,
        moment.requested_bytes,
        largest_free_bytes,
        origins.without_wrappers(moment.stack),
        (allocated_by(moment.stack) or ("", ""))[1],
        moment.caller,
        moment.autograd_node,
        place.file,
        place.line,
        place.function,
        place.code or code_at(place.file, place.line),
        place.module,
        birth.kernel or None,
    )


class _Stored(msgspec.Struct):
    version: int
    out_of_memory: OutOfMemory


def write(path: Path, report: OutOfMemory) -> None:
    """Write a report; raises OutputError."""
    content = msgspec.json.encode(_Stored(VERSION, report))
    with replacing(path) as file, gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
        packed.write(content)


def reports_in(place: Path) -> list[Path]:
    """Return the reports of a folder, or the one that is named, the oldest first."""
    if place.is_file():
        is_named = place.name.startswith(PREFIX) and place.name.endswith(SUFFIX)
        return [place] if is_named else []
    found = (*place.glob(f"{PREFIX}*{SUFFIX}"), *place.glob(f"rank_*/{PREFIX}*{SUFFIX}"))
    return sorted(found, key=lambda each: (each.stat().st_mtime_ns, each.name))


def read(path: Path) -> OutOfMemory:
    """Read a report.

    Raises:
        TraceError: It is damaged, or of a newer version.
    """
    try:
        stored = msgspec.json.decode(
            unpacked(read_regular(path, MAX_PACKED_BYTES)), type=known(_Stored)
        )
    except (OSError, zlib.error, ValueError) as error:
        raise TraceError(f"{shown(path)} is no report of out of memory ({error})") from error
    if stored.version > VERSION:
        raise TraceError(
            f"{shown(path)} was written by a newer profiler-ext (version {stored.version}; this "
            f"one reads up to {VERSION}); update profiler-ext to read it"
        )
    return stored.out_of_memory


def json_text(reports: Sequence[OutOfMemory]) -> str:
    """Return reports as JSON, for programs."""
    return msgspec.json.format(msgspec.json.encode(reports), indent=2).decode() + "\n"
