"""The compiles of this process, as torch reports them: when, how long, why again.

They tell nothing of graphs, so a failure of theirs takes nothing away from one: they run behind
a guard of their own.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from traceback import FrameSummary
from types import CodeType
from typing import Any

from profiler_ext.capture.hooks.compile_spans import Span, begin_span, kind_of, times, visible
from profiler_ext.capture.traces.stack_traces import line_resumed, note_break, note_resumed
from profiler_ext.isolation import guard
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.isolation.locks import Lock
from profiler_ext.records.compiles import (
    CacheAnswer,
    CacheLookup,
    Compilation,
    CompileCache,
    CompileFailure,
    CompileKind,
    GraphBreak,
    Recompilation,
)
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import Frame
from profiler_ext.records.provenance import Gap
from profiler_ext.torch_compat import compile_reports, points, process
from profiler_ext.torch_compat.compile_reports import CompiledFunction
from profiler_ext.torch_compat.patches import Hook

_OWNER = re.compile(r"^(?P<of>!?[0-9/]+): ")
_STACK = "\nUser stack trace:\n"
_PLACE = re.compile(r'^\s*File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)$')


def recompilation(reason_text: str) -> Recompilation:
    """Return what torch says of code that did not serve a call.

    Args:
        reason_text: ``0/0: tensor 'x' size mismatch at index 0. expected 4, actual 8``, and from
            torch 2.13 on the lines that made the guard necessary.

    Source: ``torch/_dynamo/guards.py``, ``get_guard_fail_reason_helper``.
    """
    text, _, stack = reason_text.partition(_STACK)
    owner = _OWNER.match(text)
    of, guard = (owner["of"], text[owner.end() :]) if owner else ("", text)
    return Recompilation(of, guard, _frames(stack.splitlines()))


def _frames(lines: list[str]) -> tuple[Frame, ...]:
    """A line of source follows that of its place, further in."""
    frames: list[Frame] = []
    for line in lines:
        if place := _PLACE.match(line):
            frames.append(Frame(place["file"], int(place["line"]), place["function"], None))
        elif frames and frames[-1].code is None:
            last = frames.pop()
            frames.append(Frame(last.file, last.line, last.function, line.strip()))
    return tuple(frames)


_FIRST_KEPT, _LAST_KEPT = 1_000, 3_000
"""Compiles that are kept: what is done at run time may come with every call, for ever.

The first ones are what a start takes, and the last ones may be in what is recorded.
"""
_FUNCTIONS_KEPT = 10_000

_LATE = Gap(
    GapReason.COMPILES_INCOMPLETE,
    "graphs were compiled before capture was switched on, and what that took is not known",
)
_FULL = Gap(
    GapReason.COMPILES_INCOMPLETE,
    f"more than {_FIRST_KEPT + _LAST_KEPT:,} compiles and tasks of compiled code at run time: "
    f"those between the first {_FIRST_KEPT:,} and the last {_LAST_KEPT:,} are not kept",
)
_BEGIN_NOT_SEEN = Gap(
    GapReason.COMPILES_INCOMPLETE,
    "a compile whose begin was not seen, as capture was switched on later, or failed, is not known",
)

_NO_BASE_TIME = Gap(
    GapReason.COMPILES_INCOMPLETE,
    "the trace does not tell its time zero, so that no compile can be placed in it",
)

_FAR_FROM_TRACE = Gap(
    GapReason.COMPILES_INCOMPLETE,
    "a compile whose begin lies years from the trace, as where the program sets time itself, is "
    "not kept",
)
_MAX_DISTANCE_NS = 10**17


@dataclass(slots=True)
class _OpenCompile:
    """What one thread knows of the compile that it is at."""

    kind: CompileKind
    compile_id: str | None
    number_before: int | None
    open: list[Span]
    function: CompiledFunction | None = None
    recompiles: tuple[Recompilation, ...] = ()
    breaks: list[GraphBreak] = field(default_factory=list)
    lookups: list[CacheLookup] = field(default_factory=list)
    graphs: list[int] = field(default_factory=list)
    restarts: tuple[str, ...] = ()
    failure: CompileFailure | None = None


class _PerThread(threading.local):
    open_compile: _OpenCompile | None = None


class CompileLog:
    """What compiling took in this process.

    Attributes:
        is_late: graphs were compiled before it began.
    """

    def __init__(self, dynamo_number: Callable[[], int | None]) -> None:
        """Nothing was compiled yet.

        Args:
            dynamo_number: gives the number of the Dynamo graph of the compile in force.
        """
        self.is_late = False
        self._dynamo_number = dynamo_number
        self._thread = _PerThread()
        self._lock = Lock()
        self._numbers = itertools.count()
        self._compiling = 0
        self._first: list[Compilation] = []
        self._last: deque[Compilation] = deque(maxlen=_LAST_KEPT)
        self._gaps: dict[Gap, None] = {}
        self._functions: dict[int, CompiledFunction] = {}
        self._latest: dict[str | None, CompiledFunction] = {}

    def compiles_since(self, base_ns: int) -> tuple[Compilation, ...]:
        """Return those that are over, in the order in which they ended, on a trace's clock.

        Args:
            base_ns: the wall clock at the trace's time zero; 0 where the trace does not tell it,
                and nothing can be placed in it.
        """
        if not base_ns:
            self._gaps[_NO_BASE_TIME] = None
            return ()
        kept = [each.since(base_ns) for each in (*self._first, *self._last)]
        in_trace = tuple(each for each in kept if _is_in_trace(each))
        if len(in_trace) < len(kept):
            self._gaps[_FAR_FROM_TRACE] = None
        return in_trace

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What is not known of compiles."""
        return (*((_LATE,) if self.is_late else ()), *self._gaps)

    def begin(self, name: str, started_ns: int, compile_id: object) -> None:
        """Note that this thread begins a part of a compile."""
        now = self._thread.open_compile
        if now is not None:
            now.open.append(begin_span(name, started_ns, now.open[-1]))
            return
        with self._lock.held():
            kind = kind_of(name)
            if kind is CompileKind.RUN_TIME and self._compiling:
                kind = CompileKind.WORKER
            self._compiling += _is_compile(kind)
        span = begin_span(name, started_ns, None)
        compile_id_text = process.current_compile_id() if compile_id is None else str(compile_id)
        self._thread.open_compile = _OpenCompile(
            kind, compile_id_text, self._dynamo_number(), [span]
        )

    def end(self, name: str, duration_ns: int) -> None:
        """Note that a part of a compile is over."""
        now = self._thread.open_compile
        if now is None or not _is_open(name, now.open):
            self._gaps[_BEGIN_NOT_SEEN] = None
            return
        while (span := now.open.pop()).name != name:
            span.duration_ns = sum(each.duration_ns for each in span.children)
        span.duration_ns = max(duration_ns, 0)
        if not now.open:
            self._thread.open_compile = None
            self._keep(now, span)

    def note_function(self, function: CompiledFunction | None, restarts: tuple[str, ...]) -> None:
        """Note which function this thread compiles, and why Dynamo began its trace anew."""
        if (now := self._thread.open_compile) is not None:
            now.function, now.restarts = function or now.function, restarts

    def note_failure(self, kind: str, reason: str) -> None:
        """Note that this thread's compile gives nothing."""
        if (now := self._thread.open_compile) is not None:
            now.failure = CompileFailure(kind, reason)

    def note_recompiles(self, recompiles: tuple[Recompilation, ...]) -> None:
        """Note why this thread compiles a function again."""
        if (now := self._thread.open_compile) is not None:
            now.recompiles = recompiles

    def note_break(self, broken: GraphBreak) -> None:
        """Note where Dynamo could not go on."""
        if (now := self._thread.open_compile) is not None:
            now.breaks.append(broken)

    def note_lookup(self, lookup: CacheLookup) -> None:
        """Note what a cache answered."""
        if (now := self._thread.open_compile) is not None:
            now.lookups.append(lookup)

    def note_graph(self, index: int) -> None:
        """Note that a graph instance became ready, which Inductor's innermost span is for."""
        now = self._thread.open_compile
        if now is None:
            return
        now.graphs.append(index)
        graphs = (span for span in reversed(now.open) if compile_reports.is_graph(span.name))
        own = next(graphs, None)
        if own is not None and own.graph is None:
            own.graph = index

    def _keep(self, now: _OpenCompile, outermost: Span) -> None:
        number = self._number(now)
        with self._lock.held():
            self._compiling -= _is_compile(now.kind)
            compiled = _compilation(next(self._numbers), now, outermost, number)
            if len(self._first) < _FIRST_KEPT:
                self._first.append(compiled)
                return
            if len(self._last) == _LAST_KEPT:
                self._gaps[_FULL] = None
            self._last.append(compiled)

    def _number(self, now: _OpenCompile) -> int | None:
        """The number of a compile's Dynamo graph; what follows a forward is of its function."""
        number = self._dynamo_number()
        if now.kind is CompileKind.RUN_TIME:
            now.function = self._latest.get(now.compile_id)
            return None
        if now.kind is CompileKind.BACKWARD:
            now.function = now.function or self._functions.get(-1 if number is None else number)
            return number
        if number is None or number == now.number_before:
            return None
        if now.function is not None:
            _keep(self._functions, number, now.function)
            _keep(self._latest, now.compile_id, now.function)
        return number


def _keep(into: dict[Any, CompiledFunction], key: Any, function: CompiledFunction) -> None:
    """Keep a function, and of too many the last ones; then compiles are not kept either."""
    into[key] = function
    if len(into) > _FUNCTIONS_KEPT:
        del into[next(iter(into))]


def _is_open(name: str, spans: list[Span]) -> bool:
    return spans[-1].name == name or any(span.name == name for span in spans)


def _is_compile(kind: CompileKind) -> bool:
    return kind not in (CompileKind.RUN_TIME, CompileKind.WORKER)


def _compilation(
    index: int, now: _OpenCompile, outermost: Span, dynamo_number: int | None
) -> Compilation:
    name, file, line = now.function or (None, None, None)
    resumed_name = process.resumed(name) if name else None
    if resumed_name and file and line:
        line = line_resumed(file, resumed_name, line)
    return Compilation(
        index=index,
        kind=now.kind,
        compile_id=now.compile_id,
        dynamo_number=dynamo_number,
        thread=threading.get_native_id(),
        started_ns=outermost.started_ns,
        duration_ns=outermost.duration_ns,
        times=times(outermost),
        spans=visible(outermost),
        function=resumed_name or name,
        file=file,
        line=line,
        is_resumed=resumed_name is not None,
        recompiles=now.recompiles,
        breaks=tuple(now.breaks),
        restarts=now.restarts,
        lookups=tuple(now.lookups),
        graphs=tuple(now.graphs),
        failure=now.failure,
    )


def _is_in_trace(compilation: Compilation) -> bool:
    """Tell whether the times of a compile can be those of the trace's process."""
    starts_ns = (compilation.started_ns, *(span.started_ns for span in compilation.spans))
    return all(abs(start_ns) < _MAX_DISTANCE_NS for start_ns in starts_ns)


_ANSWERS = {
    "hit": CacheAnswer.HIT,
    "miss": CacheAnswer.MISS,
    "bypass": CacheAnswer.BYPASS,
    "disabled": CacheAnswer.DISABLED,
}


class CompileHooks:
    """Notes what compiling takes, and why it is done.

    Attributes:
        guard: what keeps their failures from the user's program.
    """

    def __init__(self, guard: Guard, log: CompileLog) -> None:
        """Take where it is noted."""
        self.guard = guard
        self._log = log

    def gaps(self) -> tuple[Gap, ...]:
        """Return what is not known of compiles."""
        failed = (
            Gap(GapReason.COMPILES_INCOMPLETE, f"a hook failed, {each.hook}: {each.detail}")
            for each in self.guard.failures
        )
        return (*self._log.gaps, *failed)

    def observations(self) -> Iterator[Hook]:
        """Return what is observed where, of the places that this torch has."""
        hooks = (
            (points.COMPILE_BEGIN, self._begin),
            (points.COMPILE_END, self._end),
            (points.COMPILE_METRICS, self._metrics),
            (points.CACHE_ANSWER, self._cache_answer),
            (points.RECOMPILE, self._recompile),
            (points.GRAPH_BREAK, self._graph_break),
        )
        return ((point, observe) for point, observe in hooks if point.problem() is None)

    def ready(self, graph: int) -> None:
        """Note that a graph instance became ready in the compile that its thread is at."""
        self.guard.run("ready", self._log.note_graph, graph)

    def _begin(self, call: Observed) -> Observation:
        reported = call.arguments
        self._log.begin(reported["event_name"], reported["time_ns"], reported.get("compile_id"))
        yield

    def _end(self, call: Observed) -> Observation:
        reported = call.arguments
        self._log.end(reported["event_name"], reported["time_ns"] - reported["start_time_ns"])
        yield

    def _metrics(self, call: Observed) -> Observation:
        yield
        metrics = call.result
        function = compile_reports.function_of(metrics)
        self._log.note_function(function, compile_reports.restarts_of(metrics))
        failure = compile_reports.failure_of(metrics)
        if failure and not _is_from_own_hook(failure[1]):
            self._log.note_failure(*failure)

    def _cache_answer(self, call: Observed) -> Observation:
        yield
        if (lookup_event := compile_reports.cache_of(call["event_name"])) is not None:
            cache = CompileCache.AUTOGRAD if lookup_event[0] else CompileCache.FX_GRAPH
            reported = compile_reports.answer_of_cache(call["metadata"])
            reason = reported.bypass or reported.failed_guard
            self._log.note_lookup(
                CacheLookup(cache, _ANSWERS[lookup_event[1]], reason, reported.saved_ns)
            )

    def _recompile(self, call: Observed) -> Observation:
        self._log.note_function(compile_reports.function_of_frame(call["frame"]), ())
        yield
        self._log.note_recompiles(tuple(map(recompilation, call.result)))

    def _graph_break(self, call: Observed) -> Observation:
        reported = call.arguments
        error = reported["exc"]
        if compile_reports.is_logged(error):
            return
        code = compile_reports.code_of(reported["self"])
        if process.is_resumed(code):
            note_resumed(code)
        stack = compile_reports.stack_of_break(error, reported["code_options"])
        kind = compile_reports.kind_of_break(error)
        reason = str(reported["reason"])
        if _is_from_own_hook(reason):
            return
        yield
        frames = tuple(frame for each in stack if (frame := _frame(each, code)) is not None)
        self._log.note_break(GraphBreak(reason, frames, kind))


def _is_from_own_hook(reason: str) -> bool:
    """Tell whether Dynamo gave up at a hook of ours, as in a compiled optimizer's step.

    Nothing of the program's is left out of a graph then: torch calls hooks when the step is done.
    """
    return guard.__file__ in reason


def _frame(reported: FrameSummary, code: CodeType) -> Frame | None:
    """Return a frame, if its line is known: after a graph break torch says others.

    Source: ``torch/_dynamo/exc.py``, ``collapse_resume_frames``: what goes on with a function
    has its name there.
    """
    is_resumed_frame = (reported.filename, reported.name) == (
        code.co_filename,
        process.resumed(code.co_name),
    )
    function = code.co_name if is_resumed_frame else reported.name
    line, text = note_break(reported.filename, function, reported.lineno or 0)
    if line is None:
        return None
    return Frame(reported.filename, line, reported.name, text or reported.line or None)
