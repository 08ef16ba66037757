"""Owns which parameters each call of a part of a graph is passed, noted while recording."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from profiler_ext.capture.held_modules import HeldModules
from profiler_ext.capture.part_modules import part_modules, recorded_modules
from profiler_ext.records import GraphInstance, PartModules


class _Called(NamedTuple):
    """The parameters that calls of a part are passed, by their positions, and their number."""

    graph: int
    parameters: tuple[tuple[int, weakref.ref[torch.Tensor]], ...]
    number: int

    @property
    def is_there(self) -> bool:
        """Whether all of them are the tensors that they were: another may have their identity."""
        return all(refers() is not None for _, refers in self.parameters)


class CalledParts:
    """A number for each part and the parameters that it is called with."""

    def __init__(self, numbers: Iterator[int]) -> None:
        """Start with no call.

        Args:
            numbers: yields a number that nothing has yet.
        """
        self._numbers = numbers
        self._called: dict[tuple[int, ...], _Called] = {}

    def number(self, graph: int, inputs: Sequence[Any]) -> int:
        """Return the number of a call's parameters; calls of one part with the same have one.

        Args:
            graph: the graph's index.
            inputs: what the call is passed.
        """
        passed = [(at, each) for at, each in enumerate(inputs) if _may_be_held(each)]
        key = (graph, *(id(each) for _, each in passed))
        known = self._called.get(key)
        if known is None or not known.is_there:
            parameters = tuple((at, weakref.ref(each)) for at, each in passed)
            known = self._called[key] = _Called(graph, parameters, next(self._numbers))
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
            graph = instances[called.graph]
            paths = {at: path for at, _, path in graph.record.held_inputs or ()}
            passed = {paths[at]: refers() for at, refers in called.parameters if at in paths}
            alive = {path: tensor for path, tensor in passed.items() if tensor is not None}
            yield called.number, part_modules(recorded_modules(graph, instances), alive, held)


def _may_be_held(value: Any) -> bool:
    """Tell whether a module may hold a value as its parameter: asked at each call, so in brief."""
    return type(value) is torch.nn.Parameter or (
        issubclass(type(value), torch.Tensor) and bool(getattr(value, "_is_param", False))
    )
