"""Owns the hooks that see what compiled autograd copies, and how its copies reach Inductor."""

from __future__ import annotations

from typing import Any

from profiler_ext.capture.graphs.backwards import Backwards
from profiler_ext.capture.observing import Arguments, Around, Keywords, Observer
from profiler_ext.torch_compat import compiled_autograd, points, process
from profiler_ext.torch_compat.patches import Call


class AutogradHooks:
    """Keeps each backward half, and the names of compiled autograd's nodes."""

    def __init__(self, observe: Observer, backwards: Backwards) -> None:
        """Take where the backward halves are kept."""
        self._observe = observe
        self._backwards = backwards

    def arounds(self) -> list[Around]:
        """Return what is wrapped, and what is called in its place."""
        return [
            (points.BACKWARD_MADE, self._backward_made),
            (points.FLATTENED_GRAPH, self._flattened_graph),
        ]

    def _backward_made(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        self._observe(self._note, original, args, kwargs)
        return original(*args, **kwargs)

    def _note(self, original: Call, args: Arguments, kwargs: Keywords) -> None:
        self._backwards.note(*compiled_autograd.backward_of(original, args, kwargs))

    def _flattened_graph(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        if not process.in_compiled_autograd():
            return original(*args, **kwargs)
        return compiled_autograd.run_naming(args[0], args[1:])
