"""Owns when a step ends in a script that was never touched.

A step ends at the script's own ``prof.step()`` if it calls that, else when the first optimizer
has stepped: an eager one by torch's public hook, a compiled one when its graph has run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.compiler
import torch.profiler

from profiler_ext.capture.hooks.installing import Capture
from profiler_ext.records import GraphInstance
from profiler_ext.torch_compat import process


class StepEnds:
    """Watches a script and calls back at the end of each of its steps.

    Attributes:
        source: what ends a step: ``prof.step``, ``Optimizer.step`` or ``none`` so far.
        count: how many steps have ended.
    """

    def __init__(
        self, capture: Capture, on_end: Callable[[], None], own: Any, step_on: str | None
    ) -> None:
        """Prepare.

        Args:
            capture: the capture that is on; it reports compiled optimizers.
            on_end: called at the end of each step.
            own: the profiler whose ``step`` is not the script's.
            step_on: class name of the optimizer that ends a step; by default the first.
        """
        self.source = "none"
        self.count = 0
        self._capture = capture
        # A hook of a compiled optimizer runs where Dynamo compiles what is called.
        disabled: Any = torch.compiler.disable
        self._on_end: Callable[[], None] = disabled(on_end)
        self._own = own
        self._step_on = step_on
        self._ender: object = None
        self._ran: GraphInstance | None = None
        self._handles: list[Any] = []
        self._profiler_step = torch.profiler.profile.step

    def watch(self) -> None:
        """Begin to watch."""
        self._handles = [
            process.on_optimizer_step(self._eager_optimizer),
            process.RegionWatch(self._region_exit),
        ]
        self._capture.on_optimizer_graph = self._compiled_optimizer
        original = self._profiler_step

        def step(profiler: Any) -> None:
            if profiler is self._own:
                original(profiler)
                return
            _stop_naming_steps(profiler)
            original(profiler)
            self._end("prof.step", "prof.step")

        self._replace_step(step)

    def leave(self) -> None:
        """Leave torch as it was found."""
        for handle in self._handles:
            handle.remove()
        self._capture.on_optimizer_graph = None
        self._replace_step(self._profiler_step)

    @staticmethod
    def _replace_step(step: Callable[[Any], None]) -> None:
        torch.profiler.profile.step = step  # type: ignore[method-assign, assignment]

    def _eager_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        # Dynamo traces this hook where it compiles a step; it must see nothing to trace.
        if torch.compiler.is_compiling():
            return
        if self._step_on in (None, type(optimizer).__name__):
            self._end(id(optimizer), "Optimizer.step")

    def _compiled_optimizer(self, graph: GraphInstance) -> None:
        if self._step_on is None:
            self._ran = graph

    def _region_exit(self) -> None:
        """A step ends when the compiled function is over, not amid the profiler's events of it."""
        if (graph := self._ran) is not None:
            self._ran = None
            frame = (graph.compile_id or "").partition("/")[0]
            self._end(("graph", frame), "Optimizer.step")

    def _end(self, ender: object, source: str) -> None:
        """Count a step if what ended the first one ends it; ``prof.step`` goes before all."""
        if self._ender is None or ender == "prof.step":
            self._ender, self.source = ender, source
        if ender == self._ender:
            self.count += 1
            self._on_end()


def _stop_naming_steps(profiler: Any) -> None:
    """A script's own profiler marks its steps, which would be read as ours in the trace."""
    if profiler.step_rec_fn is not None:
        profiler.step_rec_fn.__exit__(None, None, None)
        profiler.step_rec_fn = None
    profiler.record_steps = False
