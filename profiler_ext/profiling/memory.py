"""The memory of a recording: the allocator's history, and who holds which storage."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from profiler_ext.capture.held_modules import HeldModules
from profiler_ext.capture.traces.module_paths import held_buffers, held_parameters, join_path
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.kineto.names import owners_mark
from profiler_ext.profiling import holders
from profiler_ext.records import memory
from profiler_ext.records.events import Trace
from profiler_ext.records.memory import AllocatorState, MemoryRecord, OwnerKind, StackFrame
from profiler_ext.torch_compat import autograd, device_memory, points, process
from profiler_ext.torch_compat.patches import installed

MEMORY = "memory"
"""The hook that records memory."""
_EVENT = b'"[memory]"'
_ALLOCATED, AWAITING = "active_allocated", "active_awaiting_free"
OWN = f"{Path(__file__).parents[1]}{os.sep}"
"""This package's folder: its frames say nothing about the program."""
Reading = tuple[OwnerKind, str, int, int, int]
"""Kind, name, device, address and bytes."""


class Names:
    """The names of what is known to hold memory, without keeping it alive."""

    def __init__(self) -> None:
        held = HeldModules()
        tensors, self._optimizers = device_memory.alive()
        self._optimizers = [weakref.ref(each) for each in self._optimizers]
        self._parameters: dict[int, tuple[weakref.ref[Any], str]] = {}
        self.others: list[Reading] = []  # but for names of owners; of the first reading alone
        self._buffers: dict[int, tuple[weakref.ref[Any], str]] = {}
        for module in held.modules():
            path = held.frames_of([module])[0]
            own = "" if path is None else path.path
            for name, each in held_parameters(module):
                full = join_path(own, name)
                if self._parameters.setdefault(id(each), (weakref.ref(each), full))[1] != full:
                    self.others += _reading(OwnerKind.PARAMETER, full, each)  # a tied weight
            for name, each in held_buffers(module):
                self._buffers.setdefault(id(each), (weakref.ref(each), join_path(own, name)))
        for at, reference in enumerate(self._optimizers):
            self._add_groups(at, reference())
        owned = (each.grad for each in self._alive_parameters())
        gradients = (*owned, *map(device_memory.own_gradient, tensors))
        known = {id(each): each for each in (*tensors, *gradients) if each is not None}
        self.cpu = _EndsOnCpu(known.values())
        self.others += self._unnamed(tensors)
        self._places = _Places()

    def _alive_parameters(self) -> Iterator[Any]:
        for reference, _ in self._parameters.values():
            if (parameter := reference()) is not None:
                yield parameter

    def _add_groups(self, at: int, optimizer: Any) -> None:
        for number, group in enumerate(device_memory.groups_of(optimizer)):
            for place, each in enumerate(group):
                name = f"optimizer {at}, group {number}, parameter {place}"
                self._parameters.setdefault(id(each), (weakref.ref(each), name))

    def _unnamed(self, tensors: Iterable[Any]) -> Iterator[Reading]:
        script = vars(sys.modules["__main__"]) if "__main__" in sys.modules else {}
        variables = {id(value): name for name, value in list(script.items())}
        for each in tensors:
            if id(each) in self._parameters or id(each) in self._buffers:
                continue
            what = device_memory.described(each)
            variable = variables.get(id(each))
            name = what if variable is None else f"{variable}, {what}"
            yield from _reading(OwnerKind.TENSOR, name, each)
            yield from _reading(
                OwnerKind.TENSOR, f"gradient of {name}", device_memory.own_gradient(each)
            )

    @staticmethod
    def buckets() -> Iterator[Reading]:
        """Yield the gradient buckets of ``DistributedDataParallel``; not within a backward."""
        for module in HeldModules.modules():
            for number, bucket in enumerate(device_memory.buckets_of(module)):
                yield from _reading(OwnerKind.BUCKET, f"bucket {number}", bucket)

    def read(self) -> list[Reading]:
        """Return who holds which storage now."""
        found, add = self.gradients(), self._places.add
        for key, (reference, name) in self._parameters.items():
            if (parameter := reference()) is not None:
                add(found, (OwnerKind.PARAMETER, key), name, parameter)
        for key, (reference, name) in self._buffers.items():
            if (buffer := reference()) is not None:
                add(found, (OwnerKind.BUFFER, key), name, buffer)
        for reference in self._optimizers:
            if (optimizer := reference()) is not None:
                self._add_state(found, optimizer)
        return found

    def gradients(self) -> list[Reading]:
        """Return which storages gradients hold now."""
        found: list[Reading] = []
        for reference, name in self._parameters.values():
            if (parameter := reference()) is not None:
                found += _reading(OwnerKind.GRADIENT, name, parameter.grad)
        return found

    def _add_state(self, found: list[Reading], optimizer: Any) -> None:
        for parameter, state in device_memory.states_of(optimizer):
            _, name = self._parameters.get(id(parameter), (None, "a parameter"))
            for key, value in state.items() if isinstance(state, dict) else ():
                if device_memory.is_tensor(value):
                    place = OwnerKind.OPTIMIZER_STATE, id(parameter), key
                    self._places.add(found, place, name, value)


class _Places:
    """What lasts, read again at each step's end: where it is at the same address, as before."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[int, int, Reading]] = {}  # by what it is

    def add(self, found: list[Reading], what: tuple[Any, ...], name: str, tensor: Any) -> None:
        """Add the storages of a tensor to readings.

        Args:
            found: the readings.
            what: the kind, the id of the parameter or buffer, and the key of a state.
            name: the parameter's or buffer's.
            tensor: it.
        """
        address, known = device_memory.address_of(tensor), self._known.get(what)
        if known is not None and address and known[:2] == (id(tensor), address):
            found.append(known[2])
            return
        read = _reading(what[0], name if len(what) == 2 else f"{what[2]} of {name}", tensor)
        found += read
        if len(read) == 1:
            self._known[what] = id(tensor), address, read[0]


def _reading(kind: OwnerKind, name: str, tensor: Any) -> list[Reading]:
    if tensor is None:
        return []
    return [(kind, name, *place) for place in device_memory.storages(tensor)]


def saved_readings(tensors: Iterable[Any]) -> Iterator[Reading]:
    """Yield what nodes of autograd hold, of the graphs of tensors."""
    for saved in autograd.saved_tensors(autograd.nodes_of(tensors)):
        for place in device_memory.storages(saved.tensor):
            yield OwnerKind.SAVED, f"{saved.node.name}.{saved.attribute}", *place


class _EndsOnCpu:
    """When CPU memory that was allocated before the recording is freed, which torch leaves out.

    Source: ``c10/core/CPUAllocator.cpp``, ``ProfiledCPUMemoryReporter``: it reports the end of what
    it saw begin. A storage ends with the last of its tensors.
    """

    def __init__(self, tensors: Iterable[Any]) -> None:
        self.ends: list[tuple[int, int]] = []  # wall clock, address
        self._left: Counter[int] = Counter()
        self._references = [each for tensor in tensors for each in self._watched(tensor)]

    def _watched(self, tensor: Any) -> Iterator[weakref.ref[Any]]:
        for device, address, _ in device_memory.storages(tensor):
            if device == memory.CPU:
                self._left[address] += 1
                yield weakref.ref(tensor, partial(self._end, address))

    def _end(self, address: int, _: object) -> None:
        self._left[address] -= 1
        if not self._left[address]:
            self.ends.append((time.time_ns(), address))

    def stop(self) -> None:
        """Watch no more."""
        self._references.clear()


class _OptimizerSteps:
    """Calls back after each optimizer step; the hook stays for the process.

    A recording begins and ends within torch's loop over such hooks, which raises in the program if
    one is added or removed meanwhile.
    """

    def __init__(self) -> None:
        self.reading: Callable[..., None] | None = None
        self._hook: Any = None

    def watch(self) -> None:
        """Add the hook, once: with the profiler, before a recording."""
        if self._hook is None:
            self._hook = process.on_optimizer_step(self._stepped)

    def _stepped(self, *_: Any) -> None:
        if self.reading is not None:
            self.reading()


_OPTIMIZER_STEPS = _OptimizerSteps()


@dataclass(eq=False)
class RecordedMemory:
    """The memory of the current recording, and then of the last one."""

    guard: Guard
    is_wanted: bool
    _names: Names | None = field(default=None, init=False)
    _readings: list[list[Reading]] = field(default_factory=list, init=False)
    _before: list[AllocatorState] = field(default_factory=list, init=False)
    _after: list[AllocatorState] = field(default_factory=list, init=False)
    _base: list[dict[str, Any]] = field(default_factory=list, init=False)
    _end: dict[str, Any] = field(default_factory=dict, init=False)
    _ends: list[tuple[int, int]] = field(default_factory=list, init=False)
    _pools: list[int] = field(default_factory=list, init=False)
    _missing: list[str] = field(default_factory=list, init=False)
    _has_history: bool = field(default=False, init=False)
    _saved: list[_SavedRow] = field(default_factory=list, init=False)
    _holders: list[_HolderRow] = field(default_factory=list, init=False)
    _hooks: ExitStack = field(default_factory=ExitStack, init=False)

    def __post_init__(self) -> None:
        """Watch the steps of optimizers."""
        if self.is_wanted:
            self.guard.run(MEMORY, _OPTIMIZER_STEPS.watch)

    def begin(self) -> None:
        """Record from here on."""
        if not self.is_wanted:
            return
        _OPTIMIZER_STEPS.reading = self.guard.callback(MEMORY, self._read_gradients)
        self._missing, self._end, self._saved, self._holders = [], {}, [], []
        if (why := points.BACKWARD_RUN.problem()) is None:
            hooks = [(points.BACKWARD_RUN, self._before_backward)]
            self._hooks.enter_context(installed(hooks, self.guard, lasting=True))
        else:
            self._missing.append(why)
        self._names = names = Names()
        self._readings = [[*names.read(), *names.others, *names.buckets()]]
        names.others = []
        self.guard.run(MEMORY, self._read_older)
        if device_memory.uses_cuda():
            self._before = _states()
            why = device_memory.why_no_history()
            if why is None:
                device_memory.begin_history()
                self._has_history = True
            else:
                self._missing.append(why)
            if device_memory.lists_blocks():
                self._base = device_memory.snapshot()["segments"]
                self._pools = graph_pools()

    def read_owners(self) -> None:
        """Read who holds which storage, at a mark in the trace."""
        if self._names is not None:
            self._read(self._names.read)

    def _read_gradients(self) -> None:
        """Read what a step's end may see no more: parameters and their states are there then."""
        if self._names is not None:
            self._read(self._names.gradients)

    def _read(self, owned: Callable[[], list[Reading]]) -> None:
        if process.profiler_is_on():
            with process.recording(owners_mark(len(self._readings))):
                self._holders += _held(len(self._readings), holders.variables())
                self._readings.append(owned())

    def _before_backward(self, call: Observed) -> Observation:
        """Read what autograd and the program's variables hold."""
        is_on = self._names is not None and process.profiler_is_on()
        if is_on and not _is_traced(call["t_outputs"]):
            number = len(self._readings)
            with process.recording(owners_mark(number)):
                self._readings.append([])
                self._saved += _saved(number, call["t_outputs"])
                self._holders += _held(number, holders.variables())
                self._holders += _held(number, holders.outputs(call["t_outputs"]))
        yield from ()

    def _read_older(self) -> None:
        """Read what holds the memory from before: a graph that is alive, the program's tensors."""
        known = {(device, address) for *_, device, address, _ in self._readings[0]}
        saved = saved_readings(device_memory.alive()[0])
        # On the CPU the end of what Python does not hold is not seen: such blocks are no base.
        self._readings[0] += (
            each for each in saved if each[2] != memory.CPU or (each[2], each[3]) in known
        )
        self._holders += _held(0, holders.variables())
        self._read_holders(0)

    def _read_survivors(self) -> None:
        """Read what holds the tensors that are left when the last step is over."""
        self._read_holders(memory.AT_END)

    def _read_holders(self, reading: int) -> None:
        """Read which attributes hold tensors; of what has no name yet, ask Python's collector."""
        self._holders += _held(reading, holders.attributes())
        known = {(each[-2], each[-1]) for each in self._holders if each[0] or not reading}
        known |= {(each[2], each[3]) for each in self._names.read()} if self._names else set()
        unknown = {
            id(tensor): size_bytes
            for tensor in device_memory.alive()[0]
            for device, address, size_bytes in device_memory.storages(tensor)
            if (device, address) not in known
        }
        largest = holders.Referrers(sorted(unknown, key=lambda each: -unknown[each]))
        self._holders += _held(reading, largest.found())

    def end(self) -> None:
        """End the recording."""
        if self._names is not None:
            self._names.cpu.stop()
            self._ends = self._names.cpu.ends
            self.guard.run(MEMORY, self._read_survivors)
        self._names = None
        try:
            if self._has_history:
                self._after = _states()
                self._end = device_memory.snapshot()
        finally:
            self.leave()

    def leave(self) -> None:
        """Record nothing any more."""
        self._names = None
        self._hooks.close()
        if self.is_wanted:
            _OPTIMIZER_STEPS.reading = None
        if self._has_history:
            self._has_history = False
            device_memory.end_history()

    def take(self, trace: Trace) -> MemoryRecord | None:
        """Return the record that belongs to a trace; once."""
        if not self._readings:
            return None
        frames = Stacks()
        missing = list(self._missing)
        made = MemoryRecord(
            trace_base_ns=trace.base_ns,
            events=_events(trace, missing, self._ends),
            history=_history(self._end.get("device_traces", ()), frames, missing),
            base=blocks_of(self._base, frames),
            end=blocks_of(self._end.get("segments", ()), frames),
            base_segments=segments_of(self._base),
            end_segments=segments_of(self._end.get("segments", ())),
            awaiting=blocks_of(self._base, frames, AWAITING),
            graph_pools=tuple(self._pools),
            owners=owners_of(self._readings),
            saved=memory.SavedTensors(*_columns(self._saved)),
            holders=memory.Holders(*_columns(self._holders)),
            before=tuple(self._before),
            after=tuple(self._after),
            missing=tuple(missing),
        )
        made = replace(made, frames=tuple(frames.frames), stacks=tuple(frames.stacks))
        self._readings, self._base, self._end, self._ends = [], [], {}, []
        self._saved, self._holders = [], []
        return made


_SavedRow = tuple[int, str, int, str, int, int]
_HolderRow = tuple[int, str, str, int, str, int, int]


def _is_traced(outputs: Iterable[Any]) -> bool:
    """Tell whether a compiler traces a backward, whose tensors have no memory."""
    tensors = [each for each in outputs if device_memory.is_tensor(each)]
    return bool(tensors) and not any(True for t in tensors for _ in device_memory.storages(t))


def _saved(reading: int, outputs: Iterable[Any]) -> Iterator[_SavedRow]:
    for node, attribute, tensor in autograd.saved_tensors(autograd.nodes_of(outputs)):
        for device, address, _ in device_memory.storages(tensor):
            yield reading, node.name, node.number, attribute, device, address


def _held(reading: int, found: Iterable[holders.Holder]) -> Iterator[_HolderRow]:
    for name, tensor, file, line, function in found:
        for device, address, _ in device_memory.storages(tensor):
            yield reading, name, file, line, function, device, address


def _columns(rows: list[Any]) -> Iterator[tuple[Any, ...]]:
    return map(tuple, zip(*rows, strict=True))


def _states() -> list[AllocatorState]:
    return [AllocatorState(*each) for each in device_memory.counts()]


class _Arguments(msgspec.Struct):
    address: int = msgspec.field(name="Addr")
    size_bytes: int = msgspec.field(name="Bytes")
    allocated_bytes: int = msgspec.field(name="Total Allocated")
    device_type: int = msgspec.field(name="Device Type")
    device: int = msgspec.field(name="Device Id")


class _Event(msgspec.Struct):
    ts: float
    tid: int
    args: _Arguments


_KNOWN_DEVICES = {0: "cpu", 1: "cuda"}  # ``c10/core/DeviceType.h``


def _events(
    trace: Trace, missing: list[str], ends: Iterable[tuple[int, int]]
) -> memory.MemoryEvents:
    """Return the profiler's events of memory, and ends that it leaves out, in order of time."""
    decoder = msgspec.json.Decoder(_Event)
    raw = (each for each in trace.raw.at(np.arange(len(trace.raw))) if _EVENT in each)
    thread = threading.main_thread().native_id or 0
    more = [
        _Event((wall_ns - trace.base_ns) / 1e3, thread, _Arguments(address, 0, 0, 0, memory.CPU))
        for wall_ns, address in ends
    ]
    events = sorted((*map(decoder.decode, raw), *more), key=lambda each: each.ts)
    if not events:
        missing.append("torch.profiler reported none, as it does where it records every thread")
    known = [each for each in events if each.args.device_type in _KNOWN_DEVICES]
    if len(known) < len(events):
        missing.append("devices other than CPU and CUDA are left out")
    return memory.MemoryEvents(
        tuple(round(each.ts * 1e3) for each in known),
        tuple(each.tid for each in known),
        tuple(each.args.device if each.args.device_type else memory.CPU for each in known),
        tuple(each.args.address for each in known),
        tuple(each.args.size_bytes for each in known),
        tuple(each.args.allocated_bytes for each in known),
    )


class Stacks:
    """The stacks of a snapshot, each once."""

    def __init__(self) -> None:
        self.frames: dict[StackFrame, int] = {}
        self.stacks: dict[tuple[int, ...], int] = {}

    def index(self, frames: Iterable[dict[str, Any]]) -> int:
        """Return the number of a stack, which may be new."""
        named = [
            StackFrame(each["filename"], each["line"], each["name"])
            for each in frames
            if not each["filename"].startswith(OWN)
        ]
        if not named:
            return memory.NO_STACK
        stack = tuple(self.frames.setdefault(each, len(self.frames)) for each in named)
        return self.stacks.setdefault(stack, len(self.stacks))


def _history(
    traces: Iterable[list[dict[str, Any]]], stacks: Stacks, missing: list[str]
) -> memory.AllocatorHistory:
    rows: list[tuple[Any, ...]] = []
    for device, entries in enumerate(traces):
        if len(entries) >= device_memory.MAX_ENTRIES:
            missing.append(f"device {device} has more allocations and frees than are kept")
        rows += (
            (
                device,
                each["action"],
                each.get("addr", 0),
                each["size"],
                each["stream"],
                each["time_us"],
                _pool(each.get("pool_id")),
                stacks.index(each.get("frames", ())),
            )
            for each in entries
        )
    return (
        memory.AllocatorHistory(*map(tuple, zip(*rows, strict=True)))
        if rows
        else (memory.AllocatorHistory())
    )


def _pool(number: Any) -> int:
    """Return one number of a pool's two, of which one is 0; those of the program are negative."""
    graph, program = number or (0, 0)
    return int(graph) or -int(program)


def graph_pools() -> list[int]:
    """Return the pools that are known to be of torch.compile's CUDA graphs."""
    return [_pool(each) for each in device_memory.pools_of_compiled_graphs()]


def blocks_of(
    segments: Iterable[dict[str, Any]], stacks: Stacks, state: str = _ALLOCATED
) -> memory.Blocks:
    """Return the blocks in a state of a snapshot's segments."""
    rows = [
        (
            segment["device"],
            block["address"],
            block["size"],
            segment["stream"],
            _pool(segment.get("segment_pool_id")),
            block.get("requested_size", block["size"]),
            stacks.index(block.get("frames", ())),
        )
        for segment in segments
        for block in segment["blocks"]
        if block["state"] == state
    ]
    return memory.Blocks(*map(tuple, zip(*rows, strict=True))) if rows else memory.Blocks()


def segments_of(segments: Iterable[dict[str, Any]]) -> memory.Segments:
    """Return the columns of a snapshot's segments."""
    rows = [
        (
            each["device"],
            each["address"],
            each["total_size"],
            each["stream"],
            _pool(each.get("segment_pool_id")),
        )
        for each in segments
    ]
    return memory.Segments(*map(tuple, zip(*rows, strict=True))) if rows else memory.Segments()


def owners_of(readings: list[list[Reading]]) -> memory.Owners:
    """Return the columns of readings."""
    rows = [(number, *each) for number, reading in enumerate(readings) for each in reading]
    return memory.Owners(*map(tuple, zip(*rows, strict=True))) if rows else memory.Owners()
