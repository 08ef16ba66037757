"""Owns what each call of a graph is on that is no module's own method, noted while recording.

That of a part of a graph is on the modules that hold the parameters which it is passed; that of a
function on those that its variables hold.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch

from profiler_ext.capture.graphs.kept import CallTarget
from profiler_ext.capture.held_modules import HeldModules
from profiler_ext.capture.part_modules import model_modules, part_modules, recorded_modules
from profiler_ext.capture.traces.module_paths import variable
from profiler_ext.records import GraphInstance, PartModules
from profiler_ext.torch_compat.calling import Caller, compiled_frame, value_of
from profiler_ext.torch_compat.process import is_module


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
        """Start with no call.

        Args:
            numbers: yields a number that nothing has yet.
        """
        self._numbers = numbers
        self._called: dict[tuple[int, ...], _PartCall] = {}

    def number(
        self, graph: int, on: CallTarget, inputs: Sequence[Any], caller: Caller | None
    ) -> int | None:
        """Return the number of what a call is on; calls of one graph on the same have one.

        It is ``None`` where the frame does not tell what its variables hold.

        Args:
            graph: the graph's index.
            on: what tells it.
            inputs: what the call is passed.
            caller: what calls.
        """
        given = _modules_of_variables(on, caller) if on.variables else _parameters(inputs)
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
        """Yield the modules of the calls by their numbers.

        Args:
            graphs: returns the graph instances of the process.
            held: knows the paths.
        """
        instances = graphs() if self._called else ()
        for called in tuple(self._called.values()):
            yield called.number, _modules(called, instances, held)


def _modules(called: _PartCall, instances: Sequence[GraphInstance], held: HeldModules) -> PartModules:
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


def _parameters(inputs: Sequence[Any]) -> list[tuple[int, Any]]:
    return [(at, each) for at, each in enumerate(inputs) if _is_parameter(each)]


def _is_parameter(value: Any) -> bool:
    """Tell whether a module may hold a value as its parameter: asked at each call, so in brief."""
    return type(value) is torch.nn.Parameter or (
        issubclass(type(value), torch.Tensor) and isinstance(value, torch.nn.Parameter)
    )
