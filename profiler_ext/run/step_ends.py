"""The end of a step in an unmodified script: an optimizer, a profiler's step, or a call."""

from __future__ import annotations

import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch.compiler

from profiler_ext.capture.hooks.installing import Capture
from profiler_ext.capture.traces.module_paths import user_class
from profiler_ext.errors import LinesUnavailableError
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.python_lines.monitoring import Tool, returning
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.run.request import EndedBy, StepOn
from profiler_ext.torch_compat import points, process, profilers
from profiler_ext.torch_compat.patches import Hook, installed

CALL_ENDS = "step ends"
"""The hook on the ends of calls."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that has ended."""

    ender: object  # identifies what was called
    words: str  # for a person
    source: str  # of steps, in a recording


class Outermost(threading.local):
    """The outermost call that runs on a thread."""

    def __init__(self) -> None:
        self.frame: int | None = None  # its id
        self.call: Call | None = None

    @property
    def is_any(self) -> bool:
        """Whether one runs."""
        return self.frame is not None


class CallEnds:
    """Watches the calls that end steps, with ``sys.monitoring``.

    Nothing of the program or of torch is replaced, and Dynamo has nothing to trace: the events are
    those of the one code object through which torch calls modules, or of the function's own. A call
    that raises ends no step.
    """

    def __init__(
        self, step_on: StepOn, outermost: Outermost, on_end: Callable[[Call], None], guard: Guard
    ) -> None:
        self._step_on, self._outermost = step_on, outermost
        self._on_end, self._guard = on_end, guard
        self._modules = step_on.by is EndedBy.FORWARD
        self._codes: dict[int, CodeType] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch; in Python 3.11, without ``sys.monitoring``, no call is seen."""
        try:
            self._tool = tool = Tool()
        except LinesUnavailableError as error:
            if not error.is_old:
                raise
            yield
            return
        try:
            self._listen(tool)
            yield
        finally:
            tool.leave()
            if not self._modules:
                tool.restart_events()

    def _listen(self, tool: Tool) -> None:
        guard = self._guard
        callbacks: dict[str, Callable[..., Any]] = {
            "PY_START": guard.callback(CALL_ENDS, self._module_begins),
            "PY_RETURN": guard.callback(CALL_ENDS, self._returns),
            "PY_UNWIND": guard.callback(CALL_ENDS, self._unwinds),
        }
        if self._modules:
            tool.listen(callbacks, ("PY_UNWIND",))
            self._watch(tool, process.module_call())
        else:
            callbacks["PY_START"] = self._any_code_begins
            tool.listen(callbacks, ("PY_START", "PY_UNWIND"))

    def _watch(self, tool: Tool, code: CodeType) -> None:
        self._codes[id(code)] = code
        tool.watch(code, ("PY_START", "PY_RETURN"))

    def _any_code_begins(self, code: CodeType, _: int) -> object:
        """Handle the start of the function, and disable the event for all other code."""
        if code.co_qualname != self._step_on.name:
            return self._tool.disable
        self._guard.run(CALL_ENDS, self._function_begins, code, sys._getframe(1))
        return None

    def _function_begins(self, code: CodeType, frame: FrameType) -> None:
        if frame.f_globals.get("__name__") != self._step_on.module:
            return
        if id(code) not in self._codes:
            self._watch(self._tool, code)
        if not self._outermost.is_any:
            words = f"calls of {self._step_on}"
            self._begins(frame, Call(code.co_qualname, words, "function"))

    def _module_begins(self, code: CodeType, _: int) -> None:
        if self._outermost.is_any:
            return
        frame = _frame_of(code)
        module = None if frame is None else process.called_module(frame)
        if frame is None or not process.is_module(module):
            return
        name = user_class(module)
        if self._step_on.name in (None, name):
            ender = id(module) if self._step_on.name is None else name
            self._begins(frame, Call(ender, f"calls of {name}", "forward"))

    def _begins(self, frame: FrameType, call: Call) -> None:
        self._outermost.frame, self._outermost.call = id(frame), call

    def _returns(self, code: CodeType, _: int, __: object) -> None:
        frame = _frame_of(code) if self._outermost.is_any else None
        if (call := self._pop_outermost(frame)) is not None:
            with returning(frame):
                self._on_end(call)

    def _unwinds(self, code: CodeType, _: int, __: object) -> None:
        if id(code) in self._codes:
            self._pop_outermost(_frame_of(code))

    def _pop_outermost(self, frame: FrameType | None) -> Call | None:
        """Return the outermost call if it is the one that ends."""
        outermost = self._outermost
        if frame is None or id(frame) != outermost.frame:
            return None
        call, outermost.frame, outermost.call = outermost.call, None, None
        return call


def _frame_of(code: CodeType) -> FrameType | None:
    """Return the frame of an event: the nearest one below us with its code."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame


COMPILED = "what torch.compile made"
_OPTIMIZER = "Optimizer.step"


class _PerThread(threading.local):
    """The running compiled functions, by frame, and whether the program is to end."""

    def __init__(self) -> None:
        self.entered: list[int] = []
        self.stop_requested = False


class _StepEndState(threading.local):
    """Whether a step ends in this thread: what steps meanwhile is a run's profiler."""

    is_active = False


_STEP_END = _StepEndState()


class StepEnds:
    """Watches a script and calls back at the end of each of its steps.

    A step ends at the script's own ``prof.step()`` while it has a profiler, else when the first
    optimizer has stepped: an eager one by torch's hook, a compiled one after its graph. Another
    optimizer, a model's call or a function ends it only by name. If the program is to end with a
    step, what ended the step raises ``SystemExit``, once and last, as ``sys.exit()`` does.
    """

    def __init__(
        self,
        capture: Capture,
        on_end: Callable[[], object],
        own: Any,
        step_on: StepOn = StepOn(),  # noqa: B008  (it is frozen)
        more: Iterable[Hook] = (),
    ) -> None:
        process.check_optimizer_steps()
        self.source = "none"  # of the steps: ``prof.step``, ``Optimizer.step``, ...
        self.count = 0  # of ended steps
        self.seen: Counter[str] = Counter()  # what could have ended steps
        self._capture = capture
        # Dynamo would compile what a compiled optimizer's hook calls.
        disabled: Any = torch.compiler.disable
        self._on_end: Callable[[], object] = disabled(on_end)
        self._own = own
        self._step_on = step_on
        self._more = tuple(more)
        self._ender: object = None
        self._hook = ""  # that saw it
        self._ender_ref: weakref.ref[Any] | None = None  # the optimizer or profiler that ends them
        self._optimizer_graph: GraphInstance | None = None
        self._thread = _PerThread()
        self._outermost = Outermost()
        self._hooks = ExitStack()

    def watch(self) -> None:
        """Begin to watch."""
        guard = self._capture.guard
        own_profiler = [
            (points.PROFILER_STEP, self._profiler_step),
            (points.PROFILER_STOP, self._profiler_stop),
        ]
        hooks: list[Hook] = [*own_profiler, *self._more]
        if process.reports_frame_exit():
            hooks.append((points.FRAME_EDGE, self._frame_edge))
        with ExitStack() as stack:
            stack.enter_context(installed(hooks, guard, lasting=True))
            watched = guard.callback(_OPTIMIZER, self._eager_optimizer)
            stack.callback(process.on_optimizer_step(watched).remove)
            self._capture.on_optimizer_graph = self._compiled_optimizer
            if self._step_on.by in (EndedBy.FORWARD, EndedBy.FUNCTION):
                calls = CallEnds(self._step_on, self._outermost, self._call_over, guard)
                stack.enter_context(calls.watched())
            self._hooks = stack.pop_all()

    @property
    def missed(self) -> str | None:
        """What failed in the hook on step ends, so that steps may have gone uncounted."""
        failures = self._capture.guard.failures
        return next((each.detail for each in failures if each.hook == self._hook), None)

    def leave(self) -> None:
        """Remove the hooks."""
        self._capture.on_optimizer_graph = None
        self._hooks.close()

    def _profiler_step(self, call: Observed) -> Observation:
        """A script's own profiler ends a step."""
        profiler = call["self"]
        if _STEP_END.is_active:
            return
        was_marking = profilers.marks_steps(profiler)
        profilers.mark_steps(profiler, _MarkFilter(was_marking, self._own))
        try:
            yield
        finally:
            profilers.mark_steps(profiler, was_marking)
        self.seen["prof.step()"] += 1
        if self._step_on.by is EndedBy.FIRST:
            self._end("prof.step", "prof.step", points.PROFILER_STEP.path, profiler)
        self._exit_if_requested()

    def _profiler_stop(self, call: Observed) -> Observation:
        """The script's own profiler is over: what ends the next step ends all later ones."""
        ref = self._ender_ref
        if self._ender == "prof.step" and ref is not None and ref() is call["self"]:
            self._ender = self._ender_ref = None
        yield

    def _frame_edge(self, _: Observed) -> Observation:
        """Handle the return of the outermost compiled function.

        The step ends before the evaluator is set, or Dynamo would compile what is called here; the
        program ends after, the last thing that torch does for the call.
        """
        edge, entered = process.frame_edge(), self._thread.entered
        if edge is None:
            return
        if edge not in entered[-1:]:
            entered.append(edge)
            return
        entered.pop()
        if entered:
            return
        self._frame_exit()
        yield
        self._exit_if_requested()

    def _eager_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        # Dynamo traces this hook when it compiles a step; there must be nothing to trace.
        if torch.compiler.is_compiling():
            return
        name = type(optimizer).__name__
        self.seen[f"{name}.step()"] += 1
        by = self._step_on.by
        if by is EndedBy.FIRST or (by is EndedBy.OPTIMIZER and name == self._step_on.name):
            self._end(id(optimizer), _OPTIMIZER, _OPTIMIZER, optimizer)
            self._exit_if_requested()

    def _compiled_optimizer(self, graph: GraphInstance) -> None:
        self.seen["a compiled optimizer"] += 1
        if self._step_on.by is EndedBy.FIRST:
            self._optimizer_graph = graph

    def _call_over(self, call: Call) -> None:
        """A call of a model or a function is over, with no other around it."""
        if self._step_on.name is None and self._thread.entered:
            return  # it is within a compiled function
        self.seen[call.words] += 1
        self._end(call.ender, call.source, CALL_ENDS)
        self._exit_if_requested()

    def _frame_exit(self) -> None:
        """End the step after the compiled function, not during the profiler's events of it."""
        if (graph := self._optimizer_graph) is not None:
            self._optimizer_graph = None
            frame = (graph.compile_id or "").partition("/")[0]
            self._end(("graph", frame), _OPTIMIZER, points.FRAME_EDGE.path)
        elif self._step_on == StepOn(EndedBy.FORWARD) and not self._outermost.is_any:
            self.seen[f"calls of {COMPILED}"] += 1
            self._end(COMPILED, "forward", points.FRAME_EDGE.path)

    def _end(self, ender: object, source: str, hook: str, of: Any = None) -> None:
        """Count a step if what ended the first one ends it; ``prof.step`` takes precedence."""
        # If that was an optimizer or profiler that is gone, the next one counts.
        is_gone = self._ender_ref is not None and self._ender_ref() is None
        if self._ender is None or is_gone or ender == "prof.step":
            self._ender, self.source, self._hook = ender, source, hook
            self._ender_ref = None if of is None else weakref.ref(of)
        if ender == self._ender and not _STEP_END.is_active:
            self.count += 1
            _STEP_END.is_active = True
            try:
                self._thread.stop_requested = bool(self._on_end())
            finally:
                _STEP_END.is_active = False

    def _exit_if_requested(self) -> None:
        """End the program if requested."""
        stop_requested, self._thread.stop_requested = self._thread.stop_requested, False
        if stop_requested:
            raise SystemExit(0)


class _MarkFilter:
    """Whether a script's own profiler marks its steps: not while ours records.

    ``profile.step`` asks after it has started or stopped to record.
    """

    def __init__(self, was_marking: bool, own: Any) -> None:
        self._asked = was_marking
        self._own = own

    def __bool__(self) -> bool:
        return bool(self._asked and not self._own.is_recording)
