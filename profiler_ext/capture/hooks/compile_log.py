"""The compiles of this process as torch reports them: when, how long, why again."""

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
from profiler_ext.isolation import guard, locks
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.records import compiles
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import Frame
from profiler_ext.records.provenance import Gap
from profiler_ext.torch_compat import compile_reports, patches, points, process
from profiler_ext.torch_compat.compile_reports import CompiledFunction

_OWNER = re.compile(r"^(?P<compile_id>!?[0-9/]+): ")
_STACK = "\nUser stack trace:\n"
_PLACE = re.compile(r'^\s*File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)$')


def recompilation(reason_text: str) -> compiles.Recompilation:
    """Parse torch's reason why compiled code did not serve a call.

    Source: ``torch/_dynamo/guards.py``, ``get_guard_fail_reason_helper``: ``0/0: tensor 'x' size
    mismatch at index 0. expected 4, actual 8``, from torch 2.13 on with the lines that made the
    guard necessary.
    """
    text, _, stack = reason_text.partition(_STACK)
    owner = _OWNER.match(text)
    compile_id, guard = (owner["compile_id"], text[owner.end() :]) if owner else ("", text)
    return compiles.Recompilation(compile_id, guard, _frames(stack.splitlines()))


def _frames(lines: list[str]) -> tuple[Frame, ...]:
    """A line of source follows its location, indented further."""
    frames: list[Frame] = []
    for line in lines:
        if place := _PLACE.match(line):
            frames.append(Frame(place["file"], int(place["line"]), place["function"], None))
        elif frames and frames[-1].code is None:
            last = frames.pop()
            frames.append(Frame(last.file, last.line, last.function, line.strip()))
    return tuple(frames)


_FIRST_KEPT, _LAST_KEPT = 1_000, 3_000
"""Run-time tasks may come with every call, so the first (start-up) and the last (the recording's)
compiles are kept."""
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
    """One thread's compile in progress."""

    kind: compiles.CompileKind
    compile_id: str | None
    number_before: int | None
    open: list[Span]
    function: CompiledFunction | None = None
    recompiles: tuple[compiles.Recompilation, ...] = ()
    breaks: list[compiles.GraphBreak] = field(default_factory=list)
    lookups: list[compiles.CacheLookup] = field(default_factory=list)
    graphs: list[int] = field(default_factory=list)
    restarts: tuple[str, ...] = ()
    failure: compiles.CompileFailure | None = None


class _PerThread(threading.local):
    open_compile: _OpenCompile | None = None


class CompileLog:
    """What compiling took in this process."""

    def __init__(self, dynamo_number: Callable[[], int | None]) -> None:
        self.is_late = False  # whether graphs were compiled before it began
        self._dynamo_number = dynamo_number
        self._thread = _PerThread()
        self._lock = locks.Lock()
        self._numbers = itertools.count()
        self._compiling = 0
        self._first: list[compiles.Compilation] = []
        self._last: deque[compiles.Compilation] = deque(maxlen=_LAST_KEPT)
        self._gaps: dict[Gap, None] = {}
        self._functions: dict[int, CompiledFunction] = {}
        self._latest: dict[str | None, CompiledFunction] = {}

    def compiles_since(self, base_ns: int) -> tuple[compiles.Compilation, ...]:
        """Return the finished compiles in the order of their end, on a trace's clock."""
        if not base_ns:  # the trace does not say the wall clock at its time zero
            self._gaps[_NO_BASE_TIME] = None
            return ()
        kept = [each.since(base_ns) for each in (*self._first, *self._last)]
        in_trace = tuple(each for each in kept if _is_in_trace(each))
        if len(in_trace) < len(kept):
            self._gaps[_FAR_FROM_TRACE] = None
        return in_trace

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The gaps of the compiles."""
        return (*((_LATE,) if self.is_late else ()), *self._gaps)

    def begin(self, name: str, started_ns: int, compile_id: object) -> None:
        """Note that this thread begins a span of a compile."""
        now = self._thread.open_compile
        if now is not None:
            now.open.append(begin_span(name, started_ns, now.open[-1]))
            return
        with self._lock.held():
            kind = kind_of(name)
            if kind is compiles.CompileKind.RUN_TIME and self._compiling:
                kind = compiles.CompileKind.WORKER
            self._compiling += _is_compile(kind)
        span = begin_span(name, started_ns, None)
        compile_id_text = process.current_compile_id() if compile_id is None else str(compile_id)
        self._thread.open_compile = _OpenCompile(
            kind, compile_id_text, self._dynamo_number(), [span]
        )

    def end(self, name: str, duration_ns: int) -> None:
        """Note that a span of a compile is over."""
        now = self._thread.open_compile
        if now is None or all(span.name != name for span in reversed(now.open)):
            self._gaps[_BEGIN_NOT_SEEN] = None
            return
        while (span := now.open.pop()).name != name:
            span.duration_ns = sum(each.duration_ns for each in span.children)
        span.duration_ns = max(duration_ns, 0)
        if not now.open:
            self._thread.open_compile = None
            self._keep(now, span)

    def note_function(self, function: CompiledFunction | None, restarts: tuple[str, ...]) -> None:
        """Note which function this thread compiles, and why Dynamo restarted its trace."""
        if (now := self._thread.open_compile) is not None:
            now.function, now.restarts = function or now.function, restarts

    def note_failure(self, kind: str, reason: str) -> None:
        """Note that this thread's compile failed."""
        if (now := self._thread.open_compile) is not None:
            now.failure = compiles.CompileFailure(kind, reason)

    def note_recompiles(self, recompiles: tuple[compiles.Recompilation, ...]) -> None:
        """Note why this thread recompiles a function."""
        if (now := self._thread.open_compile) is not None:
            now.recompiles = recompiles

    def note_break(self, broken: compiles.GraphBreak) -> None:
        """Note a graph break."""
        if (now := self._thread.open_compile) is not None:
            now.breaks.append(broken)

    def note_lookup(self, lookup: compiles.CacheLookup) -> None:
        """Note a cache lookup."""
        if (now := self._thread.open_compile) is not None:
            now.lookups.append(lookup)

    def note_graph(self, index: int) -> None:
        """Note that a graph instance became ready, in Inductor's innermost span."""
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
        """The number of a compile's Dynamo graph; a backward is of its forward's function."""
        number = self._dynamo_number()
        if now.kind is compiles.CompileKind.RUN_TIME:
            now.function = self._latest.get(now.compile_id)
            return None
        if now.kind is compiles.CompileKind.BACKWARD:
            now.function = now.function or self._functions.get(-1 if number is None else number)
            return number
        if number is None or number == now.number_before:
            return None
        if now.function is not None:
            _keep(self._functions, number, now.function)
            _keep(self._latest, now.compile_id, now.function)
        return number


def _keep(into: dict[Any, CompiledFunction], key: Any, function: CompiledFunction) -> None:
    into[key] = function
    if len(into) > _FUNCTIONS_KEPT:
        del into[next(iter(into))]


def _is_compile(kind: compiles.CompileKind) -> bool:
    return kind not in (compiles.CompileKind.RUN_TIME, compiles.CompileKind.WORKER)


def _compilation(
    index: int, now: _OpenCompile, outermost: Span, dynamo_number: int | None
) -> compiles.Compilation:
    name, file, line = now.function or (None, None, None)
    resumed_name = process.resumed(name) if name else None
    if resumed_name and file and line:
        line = line_resumed(file, resumed_name, line)
    return compiles.Compilation(
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


def _is_in_trace(compilation: compiles.Compilation) -> bool:
    """Tell whether the times of a compile can belong to the trace's process."""
    starts_ns = (compilation.started_ns, *(span.started_ns for span in compilation.spans))
    return all(abs(start_ns) < _MAX_DISTANCE_NS for start_ns in starts_ns)


_ANSWERS = {
    "hit": compiles.CacheAnswer.HIT,
    "miss": compiles.CacheAnswer.MISS,
    "bypass": compiles.CacheAnswer.BYPASS,
    "disabled": compiles.CacheAnswer.DISABLED,
}


class CompileHooks:
    """Notes what compiling takes, and why; with a guard of its own, as no graph depends on it."""

    def __init__(self, guard: Guard, log: CompileLog) -> None:
        self.guard = guard
        self._log = log

    def gaps(self) -> tuple[Gap, ...]:
        """Return the gaps of the compiles."""
        failed = (
            Gap(GapReason.COMPILES_INCOMPLETE, f"a hook failed, {each.hook}: {each.detail}")
            for each in self.guard.failures
        )
        return (*self._log.gaps, *failed)

    def observations(self) -> Iterator[patches.Hook]:
        """Return the hooks that this torch has places for."""
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
        """Note that a graph instance became ready in this thread's compile."""
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
            cache = (
                compiles.CompileCache.AUTOGRAD
                if lookup_event[0]
                else compiles.CompileCache.FX_GRAPH
            )
            reported = compile_reports.answer_of_cache(call["metadata"])
            reason = reported.bypass or reported.failed_guard
            self._log.note_lookup(
                compiles.CacheLookup(cache, _ANSWERS[lookup_event[1]], reason, reported.saved_ns)
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
        self._log.note_break(compiles.GraphBreak(reason, frames, kind))


def _is_from_own_hook(reason: str) -> bool:
    """Tell whether the graph break is at a hook of this package."""
    # As in a compiled optimizer's step: torch calls hooks after it, and no user code is left out.
    return guard.__file__ in reason


def _frame(reported: FrameSummary, code: CodeType) -> Frame | None:
    """Return a frame, if its line is known.

    Source: ``torch/_dynamo/exc.py``, ``collapse_resume_frames``: a resume function has the name of
    the function there.
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
