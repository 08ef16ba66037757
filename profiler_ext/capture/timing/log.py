"""Owns the compiles of this process: what is under way in each thread, and what is over."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from profiler_ext.capture.timing.phases import kind_of
from profiler_ext.capture.timing.spans import Span, begin_span, times, visible
from profiler_ext.capture.traces.resumed_lines import line_resumed
from profiler_ext.isolation.locks import Lock
from profiler_ext.records import (
    CacheLookup,
    Compilation,
    CompileFailure,
    CompileKind,
    Gap,
    GapReason,
    GraphBreak,
    Recompilation,
)
from profiler_ext.torch_compat import compile_reports, process
from profiler_ext.torch_compat.compile_reports import CompiledFunction

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
        """Note that this thread begins a part of a compile.

        Args:
            name: torch's name for it.
            started_ns: when, since 1970.
            compile_id: of which compile it is; ``None`` for the one in force.
        """
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
        self._thread.open_compile = _OpenCompile(kind, compile_id_text, self._dynamo_number(), [span])

    def end(self, name: str, duration_ns: int) -> None:
        """Note that a part of a compile is over.

        Args:
            name: torch's name for it.
            duration_ns: how long it took.
        """
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
        """Note which function this thread compiles, and why Dynamo began its trace anew.

        Args:
            function: the function, where torch tells.
            restarts: the reasons.
        """
        if (now := self._thread.open_compile) is not None:
            now.function, now.restarts = function or now.function, restarts

    def note_failure(self, kind: str, reason: str) -> None:
        """Note that this thread's compile gives nothing.

        Args:
            kind: the type of the error.
            reason: its text.
        """
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
        """Note that a graph instance became ready, which Inductor's innermost span is for.

        Args:
            index: of the graph instance.
        """
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
