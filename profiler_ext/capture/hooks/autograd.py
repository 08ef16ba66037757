"""Owns the hooks that see what compiled autograd copies, and how its copies reach Inductor."""

from __future__ import annotations

import threading

import torch.fx

from profiler_ext.capture.graphs.backwards import Backwards
from profiler_ext.isolation.asking import Results
from profiler_ext.isolation.guard import Observation, Observed
from profiler_ext.torch_compat import compiled_autograd, points, process
from profiler_ext.torch_compat.patches import Hook


class _PerThread(threading.local):
    """The graph of compiled autograd that is being traced."""

    def __init__(self) -> None:
        self.naming: compiled_autograd.Naming | None = None


class AutogradHooks:
    """Keeps each backward half, and the names of compiled autograd's nodes."""

    def __init__(self, backwards: Backwards) -> None:
        """Take where the backward halves are kept."""
        self._backwards = backwards
        self._thread = _PerThread()

    def observations(self) -> list[Hook]:
        """Return what is observed where."""
        return [
            (points.BACKWARD_MADE, self._backward_made),
            (points.FLATTENED_GRAPH, self._flattened_graph),
            (points.NODE_MADE, Results(self._name)),
        ]

    def _backward_made(self, call: Observed) -> Observation:
        self._backwards.note(*compiled_autograd.backward_of(call.arguments))
        yield

    def _flattened_graph(self, call: Observed) -> Observation:
        if not process.in_compiled_autograd():
            return
        outer, self._thread.naming = self._thread.naming, compiled_autograd.Naming(call["self"])
        try:
            yield
        finally:
            self._thread.naming = outer

    def _name(self, node: torch.fx.Node) -> None:
        if (naming := self._thread.naming) is not None:
            naming.name(node)
