"""Marks of each call of a compiled graph while recording: which graph, on which modules.

Equal parts may share one artifact, whose record names the modules of the part that it was compiled
for. A module that holds a parameter which a call is passed stands where the module stood that held
the recorded one; so do the modules around both, and what these hold. What two parameters contradict
each other on, or what is of another class there, is not known.

A function may be called on one model now and on another then: its variables tell.

That of a part of a graph is on the modules that hold the parameters which it is passed; that of a
function on those that its variables hold.

Equal graphs have one cache key and may have one region id: DDP has a model compiled bucket by
bucket within one frame. Which graph runs is known by the artifact that is called.

Layers whose frames are compiled by themselves share one graph and one region id, so nothing
at compile time tells them apart: blocks compiled one by one, and what a graph break or FSDP's
hooks leave between them. A module's forward hook would be traced and change the graph; what
is noted here lies outside what Dynamo traces.

Parts of a graph that a backend has compiled by themselves may share an artifact where they are
equal: which of them a call is for is known by the parameters that it is passed.

A graph of compiled autograd is called on no module: it copies the backwards of many forwards.
Which ones is known when it runs, by autograd's numbers, and the trace has those numbers too.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from types import FrameType
from typing import Any, NamedTuple, Protocol

import torch

from profiler_ext.capture.graphs.registered_graph import CallTarget
from profiler_ext.capture.held_modules import HeldModules
from profiler_ext.capture.traces import module_paths
from profiler_ext.capture.traces.module_paths import (
    join_path,
    user_class,
    variable,
    without_wrappers,
)
from profiler_ext.isolation.guard import Guard
from profiler_ext.isolation.hook_protocols import Ends, Ranges
from profiler_ext.kineto.names import call_mark
from profiler_ext.records.lineage import ModuleFrame, PartModules
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.torch_compat import compiled_autograd, points, process
from profiler_ext.torch_compat.calling import (
    Caller,
    KnownCalls,
    caller,
    compiled_frame,
    is_compiled_autograd_wrapper,
    module_of,
    value_of,
)
from profiler_ext.torch_compat.patches import Patch
from profiler_ext.torch_compat.process import is_module

_ModulesByPath = dict[str, torch.nn.Module]


def part_modules(
    recorded: Iterable[ModuleFrame], passed: Mapping[str, torch.Tensor], held: HeldModules
) -> PartModules:
    """Return for each module that the record of a part names the one that a call is on.

    Args:
        passed: by the recorded path of each input that a module held, what the call is passed.
    """
    by_path = _modules_by_path(passed, held)
    frames = sorted(set(recorded), key=lambda frame: frame.path)
    of_call = [_module(frame, by_path) for frame in frames]
    named = zip(frames, of_call, held.frames_of(of_call), strict=True)
    return PartModules(
        tuple(
            (
                f.path,
                call_frame if (module is not None and user_class(module) == f.class_name) else None,
            )
            for f, module, call_frame in named
        )
    )


def model_modules(
    recorded: Iterable[ModuleFrame],
    models: Mapping[str, ModuleFrame | None],
    own: ModuleFrame | None = None,
) -> PartModules:
    """Return for each module that the record of a function names the one that a call is on.

    Args:
        models: the modules that the function's variables hold, by where the record has them.
    """
    frames = sorted(set(recorded), key=lambda frame: frame.path)
    return PartModules(tuple((f.path, _in_model(f, models)) for f in frames), own)


def _in_model(frame: ModuleFrame, models: Mapping[str, ModuleFrame | None]) -> ModuleFrame | None:
    name, _, rest = frame.path.partition(".") if frame.is_of_variable else ("", "", frame.path)
    model = models.get(name)
    return None if model is None else ModuleFrame(join_path(model.path, rest), frame.class_name)


def recorded_modules(graph: GraphInstance, graphs: Iterable[GraphInstance]) -> set[ModuleFrame]:
    """Return the modules that the records of a graph and of its other half name."""
    halves = [g for g in graphs if g is graph or (g.joint == graph.joint is not None)]
    return {frame for half in halves for node in half.nodes for frame in node.lineage.modules}


def _modules_by_path(passed: Mapping[str, torch.Tensor], held: HeldModules) -> _ModulesByPath:
    """Return the modules that are known by what the call is passed, by the recorded paths."""
    candidates: dict[str, list[torch.nn.Module]] = defaultdict(list)
    for path, tensor in passed.items():
        *around, name = path.split(".")
        holders = [module for module, attribute in held.holders_of(tensor) if attribute == name]
        if len(holders) == 1:
            for inner, module in _ancestors(around, holders[0], held):
                if all(module is not other for other in candidates[inner]):
                    candidates[inner].append(module)
    return {path: matches[0] for path, matches in candidates.items() if len(matches) == 1}


def _ancestors(
    names: list[str], module: torch.nn.Module, held: HeldModules
) -> Iterable[tuple[str, torch.nn.Module]]:
    """Yield a module and those around it, each with the recorded path of what it stands for."""
    yield ".".join(names), module
    while names and (holder := held.holder_of(module)) is not None:
        names, module = names[:-1], holder
        yield ".".join(names), module


def _module(frame: ModuleFrame, by_path: _ModulesByPath) -> torch.nn.Module | None:
    """Return what stands for a recorded module: known by itself, or held by what is.

    Of several that one holds, or one of a list, a parameter must tell: an equal part may be on
    another of them.
    """
    if frame.path in by_path:
        return by_path[frame.path]
    around, _, name = frame.path.rpartition(".")
    holder = by_path.get(around) if frame.path else None
    held = [] if holder is None else list(module_paths.held_modules(without_wrappers(holder)))
    same_class = [(n, module) for n, module in held if user_class(module) == frame.class_name]
    return same_class[0][1] if [n for n, _ in same_class] == [name] else None


class _PartCall(NamedTuple):
    """What calls of a graph were on, and their number.

    Attributes:
        graph: the graph's index.
        on: what tells it.
        given: the parameters by their positions, or the modules by the places of their variables.
        number: the number in the mark.
    """

    graph: int
    on: CallTarget
    given: tuple[tuple[int, weakref.ref[Any]], ...]
    number: int

    def alive(self) -> dict[int, Any]:
        """Return what is there yet of what was given."""
        given = ((at, refers()) for at, refers in self.given)
        return {at: value for at, value in given if value is not None}


class PartCalls:
    """A number for each graph and what it is called on."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._called: dict[tuple[int, ...], _PartCall] = {}

    def number(
        self, graph: int, on: CallTarget, inputs: Sequence[Any], caller: Caller | None
    ) -> int | None:
        """Return the number of what a call is on; calls of one graph on the same have one.

        It is ``None`` where the frame does not tell what its variables hold.
        """
        given = (
            _modules_of_variables(on, caller)
            if on.variables
            else [
                (at, each)
                for at, each in enumerate(inputs)
                if (
                    type(each) is torch.nn.Parameter
                    or (
                        issubclass(type(each), torch.Tensor)
                        and isinstance(each, torch.nn.Parameter)
                    )
                )
            ]
        )
        if on.variables and not given:
            return None
        key = (graph, *(id(value) for _, value in given))
        known = self._called.get(key)
        if known is None or len(known.alive()) < len(known.given):
            refers = tuple((at, weakref.ref(value)) for at, value in given)
            known = self._called[key] = _PartCall(graph, on, refers, next(self._numbers))
        return known.number

    def modules(
        self, graphs: Callable[[], Sequence[GraphInstance]], held: HeldModules
    ) -> Iterator[tuple[int, PartModules]]:
        """Yield the modules of the calls by their numbers."""
        instances = graphs() if self._called else ()
        for called in tuple(self._called.values()):
            yield called.number, _modules(called, instances, held)


def _modules(
    called: _PartCall, instances: Sequence[GraphInstance], held: HeldModules
) -> PartModules:
    graph, alive = instances[called.graph], called.alive()
    recorded = recorded_modules(graph, instances)
    if not called.on.variables:
        paths = {at: path for at, _, path in graph.record.held_inputs or ()}
        passed = {paths[at]: tensor for at, tensor in alive.items() if at in paths}
        return part_modules(recorded, passed, held)
    names = [called.on.path(at) for at in alive]
    models = dict(zip(names, held.frames_of([*alive.values()]), strict=True))
    return model_modules(recorded, models, models.get("") if called.on.is_own else None)


def _modules_of_variables(on: CallTarget, caller: Caller | None) -> list[tuple[int, Any]]:
    frame = None if caller is None else compiled_frame(caller)
    if frame is None:
        return []
    values = enumerate(_value(frame, *variable(each)) for each in on.variables)
    return [(at, value) for at, value in values if is_module(value)]


def _value(frame: FrameType, scope: str, name: str) -> Any:
    return frame.f_globals.get(name) if scope == "G" else value_of(frame, name)


Called = ModuleFrame | PartModules
"""What a number in a mark stands for."""
_Names = dict[tuple[Any, Any], str | None]
"""By what they say; the profiler keeps a pointer to a name until its trace is written."""


class Recorder(Protocol):
    """Who records.

    Attributes:
        is_recording: it does now.
    """

    is_recording: bool


class Graphs(Protocol):
    """Knows the graphs of this process."""

    def graph_of(self, artifact: Any) -> int | None:
        """Return the index of an artifact's graph, where it is known."""

    def call_target(self, graph: int) -> CallTarget | None:
        """Return what tells the modules of a graph's calls, if not the method that calls."""

    def graphs(self) -> tuple[GraphInstance, ...]:
        """Return the graph instances."""


class CalledModules:
    """Marks each call with its graph and the module whose frame calls, and knows their paths.

    A call of a part of a graph is marked with the parameters that it is passed instead, since whose
    frame calls is the backend's; that of a function on models with the variables that hold them.
    """

    def __init__(self, graphs: Graphs, guard: Guard, recorder: Recorder) -> None:
        self._graphs = graphs
        numbers = count()
        self._numbers, self._parts = ModuleNumbers(numbers), PartCalls(numbers)
        self._known = KnownCalls()
        self._names: _Names = {}
        self._earlier_names = self._names
        self._recorder = recorder
        self._patch = Patch(points.ARTIFACT_CALL, Ranges(self._open_mark), guard)

    def watch(self) -> None:
        """Begin to mark calls, in a torch that has what a mark stands on."""
        if process.can_mark_calls():
            self._event = process.event_type()
            self._patch.install()

    def begin(self) -> None:
        """Have a recording begin: the trace of the one before is written, or soon will be.

        A mark may have numbers in it that no other call has, so its name is not kept for ever.
        """
        self._earlier_names, self._names = self._names, {}
        self._known.forget()

    def leave(self) -> None:
        """Leave torch as it was found."""
        self._patch.remove()
        self._known.forget()

    def paths(self, held: HeldModules) -> tuple[tuple[int, Called], ...]:
        """Return by its number each marked module by its path, and the modules of each part."""
        marked = self._numbers.modules()
        frames = held.frames_of([module for _, module in marked])
        modules = [(n, f) for (n, _), f in zip(marked, frames, strict=True) if f is not None]
        return (*modules, *self._parts.modules(self._graphs.graphs, held))

    def _open_mark(self, artifact: Any, inputs: Any = ()) -> Ends | None:
        """Begin the mark of a call; some ten frames of torch's lie above it, so it is brief."""
        if not self._recorder.is_recording:
            return None
        name = self._known.name(artifact) or self._mark_name(artifact, inputs)
        if name is None:
            return None
        event = self._event(name)
        event.__enter__()
        ends: Ends = event.__exit__
        return ends

    def _mark_name(self, artifact: Any, inputs: Any) -> str | None:
        """Return the name of a call's mark."""
        graph = self._graphs.graph_of(artifact)
        on = None if graph is None else self._graphs.call_target(graph)
        called_by = caller() if on is None or on.variables else None
        if graph is not None and on is not None:
            part = (graph, self._parts.number(graph, on, inputs, called_by))
            return self._interned(part, call_mark(*part))
        assert called_by is not None
        frame = called_by.frame
        module = None if frame is None else module_of(frame)
        if module is None and frame is not None and is_compiled_autograd_wrapper(frame.f_code):
            calls = compiled_autograd.copied_calls(frame)
            return self._interned((graph, calls), call_mark(graph, copies=calls))
        key = (graph, None if module is None else self._numbers.of(module))
        name = self._names[key] if key in self._names else self._interned(key, call_mark(*key))
        if graph is not None and name is not None:
            self._known.keep(artifact, called_by, module, name)
        return name

    def _interned(self, key: tuple[Any, Any], name: str | None) -> str | None:
        """Keep a name while the profiler points to it."""
        return self._names.setdefault(key, name)


class ModuleNumbers:
    """A number for each module, found by its identity: how modules compare is the user's."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbered: dict[int, tuple[weakref.ref[torch.nn.Module], int]] = {}
        self._numbers = numbers

    def of(self, module: torch.nn.Module) -> int:
        """Return the number of a module; one that has the place of a dead one has its own."""
        known = self._numbered.get(id(module))
        if known is None or known[0]() is not module:
            known = (weakref.ref(module), next(self._numbers))
            self._numbered[id(module)] = known
        return known[1]

    def modules(self) -> list[tuple[int, torch.nn.Module]]:
        """Return the modules that are alive, by their numbers."""
        alive = []
        for at, known in tuple(self._numbered.items()):
            if (module := known[0]()) is not None:
                alive.append((known[1], module))
            elif self._numbered.get(at) is known:
                del self._numbered[at]
        return sorted(alive, key=lambda each: each[0])
