"""Marks of each call of a compiled graph while recording: which graph, on which modules."""

from __future__ import annotations

import sys
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from types import FrameType
from typing import Any, NamedTuple, Protocol

import torch

from profiler_ext.capture.graphs.registered_graph import CallTarget
from profiler_ext.capture.held_modules import HeldModules, note_active
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
from profiler_ext.torch_compat import compiled_autograd, patches, points, process
from profiler_ext.torch_compat.calling import (
    Caller,
    KnownCalls,
    caller,
    compiled_frame,
    is_compiled_autograd_wrapper,
    module_of,
    value_of,
)
from profiler_ext.torch_compat.import_hooks import ARTIFACTS
from profiler_ext.torch_compat.process import is_module

_ModulesByPath = dict[str, torch.nn.Module]


def part_modules(
    recorded: Iterable[ModuleFrame], passed: Mapping[str, torch.Tensor], held: HeldModules
) -> PartModules:
    """Return, for each module in a part's record, the module that a call is on.

    Equal parts may share one artifact, whose record names the modules of the part that it was
    compiled for. The parameters passed identify the modules of a call: what holds one corresponds
    to what held the recorded one, and so do the modules around both. Where two parameters disagree,
    or the class differs, the module is unknown.
    """
    by_path = _modules_by_path(passed, held)
    of_call: dict[str, ModuleFrame | None] = {}
    for frame in sorted(set(recorded), key=lambda frame: frame.path):
        module = _module(frame, by_path)
        is_same_class = module is not None and user_class(module) == frame.class_name
        known = _frame_of_call(frame.path, by_path, of_call, held, module)
        of_call[frame.path] = known if is_same_class else None
        if module is not None:
            by_path.setdefault(frame.path, module)
    return PartModules(tuple(of_call.items()))


def _frame_of_call(
    recorded: str,
    by_path: _ModulesByPath,
    of_call: Mapping[str, ModuleFrame | None],
    held: HeldModules,
    module: torch.nn.Module | None,
) -> ModuleFrame | None:
    """Return a module's frame; one that several modules hold is named under the one of the call."""
    if module is None or not held.is_shared(module):
        return held.frames_of([module])[0]
    around, _, name = recorded.rpartition(".")
    holder = by_path.get(around)
    if holder is None or dict(module_paths.held_modules(holder)).get(name) is not module:
        return None
    outer = of_call[around] if around in of_call else held.frames_of([holder])[0]
    return outer and ModuleFrame(join_path(outer.path, name), user_class(module))


def model_modules(
    recorded: Iterable[ModuleFrame],
    models: Mapping[str, ModuleFrame | None],
    own: ModuleFrame | None = None,
) -> PartModules:
    """Return, for each module in a function's record, the module that a call is on.

    Args:
        models: the modules in the function's variables, by their recorded path.
    """
    frames = sorted(set(recorded), key=lambda frame: frame.path)
    return PartModules(tuple((f.path, _in_model(f, models)) for f in frames), own)


def _in_model(frame: ModuleFrame, models: Mapping[str, ModuleFrame | None]) -> ModuleFrame | None:
    name, _, rest = frame.path.partition(".") if frame.is_of_variable else ("", "", frame.path)
    model = models.get(name)
    return None if model is None else ModuleFrame(join_path(model.path, rest), frame.class_name)


def recorded_modules(graph: GraphInstance, graphs: Iterable[GraphInstance]) -> set[ModuleFrame]:
    """Return the modules in the records of a graph and of its other half."""
    halves = [g for g in graphs if g is graph or (g.joint == graph.joint is not None)]
    return {frame for half in halves for node in half.nodes for frame in node.lineage.modules}


def _modules_by_path(passed: Mapping[str, torch.Tensor], held: HeldModules) -> _ModulesByPath:
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
    yield ".".join(names), module
    while names and (holder := held.holder_of(module)) is not None:
        names, module = names[:-1], holder
        yield ".".join(names), module


def _module(frame: ModuleFrame, by_path: _ModulesByPath) -> torch.nn.Module | None:
    """Return the module that corresponds to a recorded one, directly or through its holder.

    Among several candidates, or in a list, only a parameter decides: an equal part may be on
    another.
    """
    if frame.path in by_path:
        return by_path[frame.path]
    around, _, name = frame.path.rpartition(".")
    holder = by_path.get(around) if frame.path else None
    held = [] if holder is None else list(module_paths.held_modules(without_wrappers(holder)))
    same_class = [(n, module) for n, module in held if user_class(module) == frame.class_name]
    return same_class[0][1] if [n for n, _ in same_class] == [name] else None


class _PartCall(NamedTuple):
    """The number of the calls of one graph with the same parameters or modules."""

    graph: int
    on: CallTarget
    given: tuple[tuple[int, weakref.ref[Any]], ...]
    number: int

    def alive(self) -> dict[int, Any]:
        given = ((at, refers()) for at, refers in self.given)
        return {at: value for at, value in given if value is not None}


class PartCalls:
    """Numbers for each graph and what it is called on."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._called: dict[tuple[int, ...], _PartCall] = {}

    def number(
        self, graph: int, on: CallTarget, inputs: Sequence[Any], caller: Caller | None
    ) -> int | None:
        """Return the number for a call; calls of one graph on the same modules share it.

        ``None`` if the frame's variables cannot be read.
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
            _note_callers()
        return known.number

    def modules(
        self, graphs: Callable[[], Sequence[GraphInstance]], held: HeldModules
    ) -> Iterator[tuple[int, PartModules]]:
        """Yield the modules of the calls, by number."""
        instances = graphs() if self._called else ()
        for called in tuple(self._called.values()):
            yield called.number, _modules(called, instances, held)


def _modules(
    called: _PartCall, instances: Sequence[GraphInstance], held: HeldModules
) -> PartModules:
    graph, alive = instances[called.graph], called.alive()
    recorded = recorded_modules(graph, instances)
    if not called.on.variables:
        paths = {at: path for at, _, path in graph.record.parameter_inputs or ()}
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


def _note_callers() -> None:
    """Note the modules whose methods call; those hold the module that a call is on."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_varnames[:1] == ("self",) and is_module(held := value_of(frame, "self")):
            note_active(held)
        frame = frame.f_back


Called = ModuleFrame | PartModules
"""What a number in a mark stands for."""
_Names = dict[tuple[Any, Any], str | None]
"""The profiler keeps a pointer to each name until its trace is written."""


class Recorder(Protocol):
    """Says whether a recording is running."""

    is_recording: bool


class Graphs(Protocol):
    """The graphs of this process."""

    def graph_of(self, artifact: Any) -> int | None:
        """Return the index of an artifact's graph, if known."""

    def call_target(self, graph: int) -> CallTarget | None:
        """Return what identifies the modules of a graph's calls, if not the calling method."""

    def graphs(self) -> tuple[GraphInstance, ...]:
        """Return the graph instances."""

    def when_imported(self, module: str, install: Callable[[], object]) -> None:
        """Install further hooks once those of a module of torch's compiler are."""


class CalledModules:
    """Marks each call with its graph and the calling module, and resolves module paths.

    Layers compiled one by one share a graph and a region id, so compile time cannot tell them
    apart; a forward hook would be traced and change the graph. So the call is marked outside what
    Dynamo traces, with the artifact and the calling frame. A part of a graph is called by the
    backend's frame: its parameters identify its modules. A function on models is identified by its
    variables, a graph of compiled autograd by the autograd numbers that it copies.
    """

    def __init__(self, graphs: Graphs, guard: Guard, recorder: Recorder) -> None:
        self._graphs = graphs
        numbers = count()
        self._numbers, self._parts = ModuleNumbers(numbers), PartCalls(numbers)
        self._known = KnownCalls()
        self._names: _Names = {}
        self._earlier_names = self._names
        self._recorder, self._guard, self._is_over = recorder, guard, True
        self._patch = patches.Patch(points.ARTIFACT_CALL, Ranges(self._open_mark), guard)

    def watch(self) -> None:
        """Mark calls of compiled graphs from here on, if this torch supports it."""
        self._is_over = False
        install = self._guard.callback("called modules", self._install)
        self._graphs.when_imported(ARTIFACTS, install)

    def _install(self) -> None:
        if not self._is_over and process.can_mark_calls():
            self._event = process.event_type()
            self._patch.install()

    def begin(self) -> None:
        """Begin a recording."""
        # Numbers in a mark may be unique to one call, so names are dropped one recording later,
        # when the earlier trace is written.
        self._earlier_names, self._names = self._names, {}
        self._known.forget()

    def leave(self) -> None:
        """Remove the hooks."""
        self._is_over = True
        self._patch.remove()
        self._known.forget()

    def paths(self, held: HeldModules) -> tuple[tuple[int, Called], ...]:
        """Return the module frame of each marked number, and the modules of each part."""
        marked = self._numbers.modules()
        frames = held.frames_of([module for _, module in marked])
        modules = [(n, f) for (n, _), f in zip(marked, frames, strict=True) if f is not None]
        return (*modules, *self._parts.modules(self._graphs.graphs, held))

    def _open_mark(self, artifact: Any, inputs: Any = ()) -> Ends | None:
        """Open the mark of a call; kept short, as it runs at every call."""
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
        graph = self._graphs.graph_of(artifact)
        on = None if graph is None else self._graphs.call_target(graph)
        called_by = caller() if on is None or on.variables else None
        if graph is not None and on is not None:
            part = (graph, self._parts.number(graph, on, inputs, called_by))
            return self._names.setdefault(part, call_mark(*part))
        assert called_by is not None
        frame = called_by.frame
        module = None if frame is None else module_of(frame)
        if module is None and frame is not None and is_compiled_autograd_wrapper(frame.f_code):
            calls = compiled_autograd.copied_calls(frame)
            return self._names.setdefault((graph, calls), call_mark(graph, copies=calls))
        key = (graph, None if module is None else self._numbers.of(module))
        names = self._names
        name = names[key] if key in names else names.setdefault(key, call_mark(*key))
        if graph is not None and name is not None:
            self._known.keep(artifact, called_by, module, name)
        return name


class ModuleNumbers:
    """A number for each module, by identity: module equality is user-defined."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbered: dict[int, tuple[weakref.ref[torch.nn.Module], int]] = {}
        self._numbers = numbers

    def of(self, module: torch.nn.Module) -> int:
        """Return the number of a module."""
        known = self._numbered.get(id(module))
        if known is None or known[0]() is not module:
            known = (weakref.ref(module), next(self._numbers))
            self._numbered[id(module)] = known
            _note_callers()
        return known[1]

    def modules(self) -> list[tuple[int, torch.nn.Module]]:
        """Return the live modules with their numbers."""
        alive = []
        for at, known in tuple(self._numbered.items()):
            if (module := known[0]()) is not None:
                alive.append((known[1], module))
            elif self._numbered.get(at) is known:
                del self._numbered[at]
        return sorted(alive, key=lambda each: each[0])
