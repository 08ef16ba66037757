"""The end of a step in an unmodified script: an optimizer, a profiler's step, or a call."""

from __future__ import annotations

import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from types import CodeType, FrameType
from typing import Any

import torch.compiler

from profiler_ext.capture.hooks.installing import Capture
from profiler_ext.capture.traces.module_paths import user_class
from profiler_ext.errors import LinesUnavailableError
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.python_lines.monitoring import Tool, python_without_monitoring, returning
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.records.recording import StepCall
from profiler_ext.records.step_kinds import is_prompt, kind_of
from profiler_ext.records.vocabulary import StepKind
from profiler_ext.run.calls import (
    NOTHING,
    Call,
    OnCall,
    RepeatedCall,
    called_text,
    compiled_call,
    module_call,
)
from profiler_ext.run.request import EndedBy, StepOn
from profiler_ext.torch_compat import points, process, profilers
from profiler_ext.torch_compat.import_hooks import DYNAMO
from profiler_ext.torch_compat.patches import Hook, installed

CALL_ENDS = "step ends"
"""The hook on the ends of calls."""


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
        self,
        step_on: StepOn,
        outermost: Outermost,
        on_begin: OnCall,
        on_end: OnCall,
        guard: Guard,
    ) -> None:
        self._step_on, self._outermost = step_on, outermost
        self._on_begin, self._on_end, self._guard = on_begin, on_end, guard
        self._modules = step_on.by is not EndedBy.FUNCTION
        self._codes: dict[int, CodeType] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch.

        Raises:
            LinesUnavailableError: Other tools have all ids of ``sys.monitoring``.
        """
        self._tool = tool = Tool()
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
            of = called_text("function", code.co_qualname, [code])
            self._begins(frame, Call(code.co_qualname, of, "function"))

    def _module_begins(self, code: CodeType, _: int) -> None:
        if self._outermost.is_any:
            return
        frame = _frame_of(code)
        module = None if frame is None else process.called_module(frame)
        if frame is None or not process.is_module(module):
            return
        given = process.call_arguments(frame)
        if self._step_on.name is None:
            self._begins(frame, module_call(module, given))
        elif self._step_on.name == (name := user_class(module)):
            self._begins(frame, replace(module_call(module, given), ender=name))

    def _begins(self, frame: FrameType, call: Call) -> None:
        self._outermost.frame, self._outermost.call = id(frame), call
        self._on_begin(call)

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


class ModuleHooks:
    """Watches the outermost calls of modules with torch's global hooks, where Python is 3.11.

    They are gone before anything is compiled: Dynamo would trace them, and
    ``OptimizedModule.__call__`` warns of them.
    """

    def __init__(
        self, outermost: Outermost, on_begin: OnCall, on_end: OnCall, guard: Guard
    ) -> None:
        self._outermost, self._guard = outermost, guard
        self._on_begin, self._on_end = on_begin, on_end
        self._depth = threading.local()  # of the outermost module's calls of itself
        self._hooks = ExitStack()

    def watch(self) -> None:
        """Begin to watch."""
        watched = (self._begins, self._ends, self._registered)
        callbacks = (self._guard.callback(CALL_ENDS, each) for each in watched)
        for handle in process.on_module_calls(*callbacks):
            self._hooks.callback(handle.remove)

    def leave(self) -> None:
        """Remove the hooks; a call that runs is no outermost one then."""
        self._hooks.close()
        self._outermost.frame = self._outermost.call = None

    def _registered(self, holder: Any, _: str, __: Any) -> None:
        if process.is_compiled_module(holder):
            self.leave()

    def _begins(self, module: Any, _: Any) -> None:
        outermost = self._outermost
        if not outermost.is_any:
            frame = _frame_of(process.module_call())  # torch gives hooks no arguments by name
            call = module_call(module, NOTHING if frame is None else process.call_arguments(frame))
            outermost.frame, outermost.call = id(module), call
            self._depth.count = 0
            self._on_begin(call)
        if outermost.frame == id(module):
            self._depth.count += 1

    def _ends(self, module: Any, _: Any, result: Any) -> None:
        outermost = self._outermost
        if outermost.frame != id(module):
            return
        self._depth.count -= 1
        if self._depth.count == 0:
            call, outermost.frame, outermost.call = outermost.call, None, None
            if call is not None and result is not None:  # else it raised
                self._on_end(call)


_OPTIMIZER = "Optimizer.step"
_ACCUMULATED = 64
"""The calls with gradients after which an optimizer that has not stepped is not waited for."""


class _PerThread(threading.local):
    """The running compiled functions, by frame, and whether the program is to end."""

    def __init__(self) -> None:
        self.entered: list[int] = []
        self.call: Call | None = None  # of the outermost of these
        self.stop_requested = False


class _StepEndState(threading.local):
    """Whether a step ends in this thread: what steps meanwhile is a run's profiler."""

    is_active = False


_STEP_END = _StepEndState()


class StepEnds:
    """Watches a script and calls back at the end of each step.

    A step ends at the script's own ``prof.step()`` while it has a profiler, else when the first
    optimizer has stepped: an eager one by torch's hook, a compiled one after its graph. Until one
    has, the outermost calls that repeat end steps, of a compiled function before those of a module:
    a script that does not train has no other. The second call begins step 1, and may be the last.
    When an optimizer steps after all, or another call turns out to repeat more often, steps are
    counted from there: ``on_restart`` is told whether it must.

    Another optimizer, a model's call or a function ends a step only by name. If the program is to
    end with a step, what ended the step raises ``SystemExit``, once and last, as ``sys.exit()``
    does.
    """

    def __init__(
        self,
        capture: Capture,
        on_end: Callable[[], object],
        own: Any,
        step_on: StepOn = StepOn(),  # noqa: B008  (it is frozen)
        more: Iterable[Hook] = (),
        on_restart: Callable[[bool], bool] = lambda _: True,
        takes_calls: bool = False,
    ) -> None:
        process.check_optimizer_steps()
        self.source = "none"  # of the steps: ``prof.step``, ``Optimizer.step``, ...
        self.count = 0  # of ended steps
        self.seen: Counter[str] = Counter()  # what could have ended steps
        self.own = own  # profiler of the steps
        self._capture = capture
        # Dynamo would compile what a compiled optimizer's hook calls.
        self._on_end = process.not_compiled(on_end)
        self._on_restart = process.not_compiled(on_restart)
        self._step_on = step_on
        self._more = tuple(more)
        self._ender: object = None
        self._hook = ""  # that saw it
        self._ender_ref: weakref.ref[Any] | None = None  # the optimizer or profiler that ends them
        self._optimizer_graph: GraphInstance | None = None
        self._thread = _PerThread()
        self._outermost = Outermost()
        self._takes_calls = takes_calls and step_on.by is EndedBy.FIRST
        self._repeated = RepeatedCall(2 if self._takes_calls else 1)
        self.calls: tuple[StepCall, ...] = ()  # with tokens, of the step that ends
        self.begins_prefill = False  # with the step after it
        self._calls: list[StepCall] = []
        self._is_decoding = self._has_decoded = self._is_in_prefill = False
        self._waited = 0  # calls for an optimizer to step
        self._optimizer_ref: weakref.ref[Any] | None = None
        self._module_hooks: ModuleHooks | None = None
        self._hooks, self._call_hooks = ExitStack(), ExitStack()
        self._is_watching = False

    @property
    def of(self) -> str:
        """What is called, where calls end the steps."""
        return "" if self._repeated.call is None else self._repeated.call.of

    @property
    def found_call(self) -> bool:
        """Whether calls end the steps because nothing else has yet."""
        return self._takes_calls and self._repeated.call is not None

    @property
    def is_decoding(self) -> bool:
        """Whether the last call generated a token, so that a prefill may come."""
        return self._is_decoding

    @property
    def is_of_prefill(self) -> bool:
        """Whether the step that ends is a prefill, or between calls, of a program that decodes."""
        return self._has_decoded and kind_of(self.calls) in (StepKind.PREFILL, StepKind.BETWEEN)

    @property
    def may_train(self) -> bool:
        """Whether calls end the steps for now, and there is an optimizer that may step."""
        return self.found_call and process.live_optimizer() is not None

    def watch(self) -> None:
        """Begin to watch."""
        guard = self._capture.guard
        own_profiler = [
            (points.PROFILER_STEP, self._profiler_step),
            (points.PROFILER_STOP, self._profiler_stop),
        ]
        hooks: list[Hook] = [*own_profiler, *self._more]
        with ExitStack() as stack:
            stack.enter_context(installed(hooks, guard, lasting=True))
            watched = guard.callback(_OPTIMIZER, self._eager_optimizer)
            stack.callback(process.on_optimizer_step(watched).remove)
            self._capture.on_optimizer_graph = self._compiled_optimizer
            self._watch_calls(guard)
            self._hooks = stack.pop_all()
        self._is_watching = True
        self._capture.when_imported(DYNAMO, partial(self._watch_frames, guard))

    def _watch_frames(self, guard: Guard) -> None:
        """Watch the calls of compiled functions: Dynamo is there."""
        if self._is_watching and process.reports_frame_exit():
            edge = (points.FRAME_EDGE, self._frame_edge)
            self._hooks.enter_context(installed([edge], guard, lasting=True))

    def _watch_calls(self, guard: Guard) -> None:
        by = self._step_on.by
        if not self._takes_calls and by not in (EndedBy.FORWARD, EndedBy.FUNCTION):
            return
        watched = (self._call_begins, self._call_over)
        with ExitStack() as stack:
            if python_without_monitoring() is None:
                calls = CallEnds(self._step_on, self._outermost, *watched, guard)
                with suppress(LinesUnavailableError) if self._takes_calls else nullcontext():
                    stack.enter_context(calls.watched())
            elif by is not EndedBy.FUNCTION:
                self._module_hooks = ModuleHooks(self._outermost, *watched, guard)
                stack.callback(self._module_hooks.leave)
                self._module_hooks.watch()
            self._call_hooks = stack.pop_all()

    @property
    def missed(self) -> str | None:
        """What failed in the hook on step ends, so that steps may have gone uncounted."""
        failures = self._capture.guard.failures
        return next((each.detail for each in failures if each.hook == self._hook), None)

    def leave_calls(self) -> None:
        """Watch no calls any more."""
        self._takes_calls = False
        self._call_hooks.close()

    def leave(self) -> None:
        """Remove the hooks."""
        self._capture.on_optimizer_graph = None
        self._is_watching = False
        self.leave_calls()
        self._hooks.close()

    def _profiler_step(self, call: Observed) -> Observation:
        """A script's own profiler ends a step."""
        profiler = call["self"]
        if _STEP_END.is_active:
            return
        was_marking = profilers.marks_steps(profiler)
        profilers.mark_steps(profiler, _MarkFilter(was_marking, self.own))
        try:
            yield
        finally:
            profilers.mark_steps(profiler, was_marking)
        self.seen["prof.step()"] += 1
        self._calls_give_way()
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
        if id(edge) not in entered[-1:]:
            entered.append(id(edge))
            if self._module_hooks is not None:
                self._module_hooks.leave()
            if len(entered) == 1 and self._takes_any_call and not self._outermost.is_any:
                self._thread.call = call = compiled_call(edge)
                self._outermost_begins(call, points.FRAME_EDGE.path)
            return
        entered.pop()
        if entered:
            return
        self._frame_exit(edge)
        yield
        self._exit_if_requested()

    def _eager_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        # Dynamo traces this hook when it compiles a step; there must be nothing to trace.
        if torch.compiler.is_compiling():
            return
        name = type(optimizer).__name__
        self.seen[f"{name}.step()"] += 1
        by = self._step_on.by
        self._calls_give_way()
        if by is EndedBy.FIRST or (by is EndedBy.OPTIMIZER and name == self._step_on.name):
            self._end(id(optimizer), _OPTIMIZER, _OPTIMIZER, optimizer)
            self._exit_if_requested()

    def _compiled_optimizer(self, graph: GraphInstance) -> None:
        self.seen["a compiled optimizer"] += 1
        if self._step_on.by is EndedBy.FIRST:
            self._optimizer_graph = graph

    def _call_begins(self, call: Call) -> None:
        is_watched = self._takes_calls or self._step_on.by is EndedBy.FORWARD
        if is_watched and not self._thread.entered:
            self._outermost_begins(call, CALL_ENDS)

    @property
    def _takes_any_call(self) -> bool:
        return self._takes_calls or self._step_on == StepOn(EndedBy.FORWARD)

    def _call_over(self, call: Call) -> None:
        """A call of a model or a function is over, with no other around it."""
        if self._step_on.name is not None:
            self.seen[f"calls of {call.of}"] += 1
            self._repeated.call = call
            self._count_tokens(call)
            self._end(call.ender, call.source, CALL_ENDS)
            self._exit_if_requested()
        elif not self._thread.entered:  # else it is within a compiled function
            self._outermost_over(call, CALL_ENDS)
            self._exit_if_requested()

    def _frame_exit(self, edge: FrameType) -> None:
        """End the step after the compiled function, not during the profiler's events of it."""
        if (graph := self._optimizer_graph) is not None:
            self._optimizer_graph = None
            self._calls_give_way()
            frame = (graph.compile_id or "").partition("/")[0]
            self._end(("graph", frame), _OPTIMIZER, points.FRAME_EDGE.path)
        elif not self._outermost.is_any and self._takes_any_call:
            call, self._thread.call = self._thread.call, None
            self._outermost_over(call or compiled_call(edge), points.FRAME_EDGE.path)

    def _outermost_begins(self, call: Call, hook: str) -> None:
        """End step 0 where the second call of what repeats begins, and a step before a prefill."""
        is_first = self._takes_calls and self._repeated.would_be_first(call)
        if is_first and not self._waits_for_optimizer():
            self._repeated.call = call
            self._end(call.ender, call.source, hook)
        elif self._has_decoded and self._is_prompt(call) and self._repeated.call is not None:
            is_in_round = self._repeated.has_rounds and bool(self._calls)  # after first drafts
            if self._is_decoding and not is_in_round:
                self.begins_prefill = True
                self._end(self._ender, self.source, self._hook)
                self.begins_prefill = False
            self._is_in_prefill = True

    def _is_prompt(self, call: Call) -> bool:
        return call.tokens is not None and is_prompt(call.tokens.length, len(self._calls))

    def _count_tokens(self, call: Call) -> None:
        if call.tokens is not None:
            self._is_decoding = not self._is_prompt(call)
            self._has_decoded |= self._is_decoding
            self._calls.append(call.tokens)

    def _outermost_over(self, call: Call, hook: str) -> None:
        """End a step if this is the call that repeats."""
        self.seen[f"calls of {call.of}"] += 1
        if self._step_on.by is EndedBy.FIRST and not self._takes_calls:
            return
        self._count_tokens(call)
        repeated = self._repeated
        is_next = repeated.is_next(call)
        is_current = repeated.call is not None and repeated.call.ender == call.ender
        if self._is_in_prefill and not is_next:
            self._end(self._ender, self.source, self._hook)
            return
        if not (is_next or is_current) or self._waits_for_optimizer():
            return
        if not is_current:
            if repeated.call is not None and not self._restart(is_forced=repeated.has_rounds):
                return
            repeated.call = call
        self._end(call.ender, call.source, hook)

    def _waits_for_optimizer(self) -> bool:
        """Tell whether the script is about to train: accumulating gradients takes many calls."""
        if not self._takes_calls or not torch.is_grad_enabled() or self._waited >= _ACCUMULATED:
            return False
        optimizer = None if self._optimizer_ref is None else self._optimizer_ref()
        if optimizer is None and self._waited.bit_count() < 2:  # a search takes milliseconds
            optimizer = process.live_optimizer()
            self._optimizer_ref = None if optimizer is None else weakref.ref(optimizer)
        self._waited += 1
        return optimizer is not None

    def _restart(self, *, is_forced: bool) -> bool:
        """Count steps from here on; return whether that is possible."""
        if not self._on_restart(is_forced):
            return False
        self.count, self._ender, self._ender_ref = 0, None, None
        return True

    def _calls_give_way(self) -> None:
        """Count steps from here on, at the first of the script's own marks or its optimizer's."""
        if self._step_on.by is not EndedBy.FIRST:
            return
        self.leave_calls()
        if self._repeated.call is not None:
            self._repeated.call = None
            self._restart(is_forced=True)

    def _end(self, ender: object, source: str, hook: str, of: Any = None) -> None:
        """Count a step if what ended the first one ends it; ``prof.step`` takes precedence."""
        # If that was an optimizer or profiler that is gone, the next one counts.
        is_gone = self._ender_ref is not None and self._ender_ref() is None
        if self._ender is None or is_gone or ender == "prof.step":
            self._ender, self.source, self._hook = ender, source, hook
            self._ender_ref = None if of is None else weakref.ref(of)
        if ender == self._ender and not _STEP_END.is_active:
            self.count += 1
            self.calls, self._calls = tuple(self._calls), []
            self._is_in_prefill = False
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
