"""Owns which graph each call of a compiled graph runs and what on, noted only while recording.

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
from collections.abc import Iterator
from itertools import count
from typing import Any, Protocol

import torch

from profiler_ext.capture.called_parts import PartCalls
from profiler_ext.capture.graphs.kept import CallTarget
from profiler_ext.capture.held_modules import HeldModules
from profiler_ext.isolation.asking import Ends, Ranges
from profiler_ext.isolation.guard import Guard
from profiler_ext.kineto.names import call_mark
from profiler_ext.records import GraphInstance, ModuleFrame, PartModules
from profiler_ext.torch_compat import compiled_autograd, points, process
from profiler_ext.torch_compat.calling import KnownCalls, caller, module_of, is_compiled_autograd_wrapper
from profiler_ext.torch_compat.patches import Patch

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
        """Note nothing yet.

        Args:
            graphs: knows the graphs of this process.
            guard: what keeps failures from the calls.
            recorder: tells whether marks are wanted: no other profiler shall see them.
        """
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
        """Return by its number each marked module by its path, and the modules of each part.

        Args:
            held: knows the paths.
        """
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
        """Start with no module.

        Args:
            numbers: yields a number that nothing has yet.
        """
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
