"""Owns the hooks that see compiles as such: their parts, their reasons, their caches' answers.

They tell nothing of graphs, so a failure of theirs takes nothing away from one: they run behind
a guard of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from traceback import FrameSummary
from types import CodeType

from profiler_ext.capture.timing.log import CompileLog
from profiler_ext.capture.timing.recompile_reasons import recompilation
from profiler_ext.capture.traces.resumed_lines import note_break, note_resumed
from profiler_ext.isolation import guard
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.records import (
    CacheAnswer,
    CacheLookup,
    CompileCache,
    Frame,
    Gap,
    GapReason,
    GraphBreak,
)
from profiler_ext.torch_compat import compile_reports, points, process
from profiler_ext.torch_compat.patches import Hook

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
        """Take where it is noted.

        Args:
            guard: a guard that is of these hooks alone.
            log: where it is noted.
        """
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
            self._log.note_lookup(CacheLookup(cache, _ANSWERS[lookup_event[1]], reason, reported.saved_ns))

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
    is_resumed_frame = (reported.filename, reported.name) == (code.co_filename, process.resumed(code.co_name))
    function = code.co_name if is_resumed_frame else reported.name
    line, text = note_break(reported.filename, function, reported.lineno or 0)
    if line is None:
        return None
    return Frame(reported.filename, line, reported.name, text or reported.line or None)
