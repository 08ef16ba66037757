"""The ends of steps in a process in which nothing of a compile is observed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Any, cast

import torch.compiler

from profiler_ext.capture.hooks.installing import Capture
from profiler_ext.isolation.guard import Guard
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.run.calls import compiled_call
from profiler_ext.run.request import EndedBy, StepOn
from profiler_ext.run.step_ends import StepEnds
from profiler_ext.torch_compat import points, process

_OPTIMIZER = "Optimizer.step"


class _NoCapture:
    """Stands for capture: what fails is kept, and no graph is known."""

    def __init__(self) -> None:
        self.guard = Guard()
        self.on_optimizer_graph: Callable[[GraphInstance], None] | None = None

    def when_imported(self, module: str, install: Callable[[], object]) -> None:
        """Install hooks on a module now: Dynamo is imported for the optimizers that it traces."""
        import_module(module)
        install()


class _NoProfiler:
    """Stands for the profiler of a run."""

    is_recording = False


class UntracedStepEnds(StepEnds):
    """Ends steps as a run does, without capture.

    That a compiled function steps an optimizer is seen when it is traced: torch's hook on steps is
    traced then, and what it calls as a constant is called once, while Dynamo traces.
    """

    def __init__(
        self,
        on_end: Callable[[], object],
        step_on: StepOn,
        on_restart: Callable[[bool], bool],
    ) -> None:
        super().__init__(
            cast(Capture, _NoCapture()),
            on_end,
            _NoProfiler(),
            step_on,
            on_restart=on_restart,
            takes_calls=True,
        )
        self._is_traced = False
        self._stepping: set[object] = set()  # compiled functions that step an optimizer

        def traced() -> int:
            self._is_traced = True
            return 0

        as_constant: Any = torch.compiler.assume_constant_result  # not typed
        self._note_traced: Callable[[], int] = as_constant(traced)

    def _eager_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            self._note_traced()
            return
        super()._eager_optimizer(optimizer, args, kwargs)

    def _frame_exit(self, edge: FrameType) -> None:
        ender = compiled_call(edge).ender
        if self._is_traced:
            self._is_traced = False
            self._stepping.add(ender)
        if ender not in self._stepping:
            super()._frame_exit(edge)
            return
        self.seen["a compiled optimizer"] += 1
        if self._step_on.by in (EndedBy.FIRST, EndedBy.OPTIMIZER):
            self._calls_give_way()
            optimizer = process.compiled_optimizer(edge) or self._replaced_optimizer()
            name = type(optimizer).__name__
            if self._step_on.by is EndedBy.FIRST or name == self._step_on.name:
                of = ("compiled", ender) if optimizer is None else id(optimizer)
                self._end(of, _OPTIMIZER, points.FRAME_EDGE.path, optimizer)

    def _replaced_optimizer(self) -> Any:
        """Return the optimizer that ended the last step, if its method was replaced since."""
        optimizer = None if self._ender_ref is None else self._ender_ref()
        return optimizer if optimizer is not None and "step" in vars(optimizer) else None
