"""The ends of steps in a process in which nothing of a compile is observed."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any, cast

import torch.compiler

from profiler_ext.capture.hooks.installing import Capture
from profiler_ext.isolation.guard import Guard
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.records.vocabulary import CacheState
from profiler_ext.run.request import StepOn
from profiler_ext.run.step_ends import StepEnds, compiled_call


class _NoCapture:
    """Stands for capture: what fails is kept, and no graph is known."""

    def __init__(self) -> None:
        self.guard = Guard()
        self.on_optimizer_graph: Callable[[GraphInstance], None] | None = None


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
        if ender in self._stepping:
            self._compiled_optimizer(_graph_of(ender))
        super()._frame_exit(edge)


def _graph_of(ender: object) -> GraphInstance:
    """Return a graph without a record, named by what was called."""
    return GraphInstance(
        index=0,
        key=None,
        compile_id=str(ender),
        is_backward=False,
        cache_state=next(iter(CacheState)),
        cache_detail=None,
        compile_ns=0,
        output_module=None,
    )
