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
            (points.COMPILE_TOLD, self._told),
            (points.CACHE_ANSWER, self._cache_answer),
            (points.RECOMPILE, self._recompile),
            (points.GRAPH_BREAK, self._graph_break),
        )
        return ((point, observe) for point, observe in hooks if point.problem() is None)

    def ready(self, graph: int) -> None:
        """Note that a graph instance became ready in the compile that its thread is at."""
        self.guard.run("ready", self._log.note_graph, graph)

    def _begin(self, call: Observed) -> Observation:
        told = call.arguments
        self._log.begin(told["event_name"], told["time_ns"], told.get("compile_id"))
        yield

    def _end(self, call: Observed) -> Observation:
        told = call.arguments
        self._log.end(told["event_name"], told["time_ns"] - told["start_time_ns"])
        yield

    def _told(self, call: Observed) -> Observation:
        yield
        metrics = call.result
        function = compile_reports.function_of(metrics)
        self._log.note_function(function, compile_reports.restarts_of(metrics))
        failure = compile_reports.failure_of(metrics)
        if failure and not _is_of_ours(failure[1]):
            self._log.note_failure(*failure)

    def _cache_answer(self, call: Observed) -> Observation:
        yield
        if (asked := compile_reports.cache_of(call["event_name"])) is not None:
            cache = CompileCache.AUTOGRAD if asked[0] else CompileCache.FX_GRAPH
            told = compile_reports.answer_of_cache(call["metadata"])
            reason = told.bypass or told.failed_guard
            self._log.note_lookup(CacheLookup(cache, _ANSWERS[asked[1]], reason, told.saved_ns))

    def _recompile(self, call: Observed) -> Observation:
        self._log.note_function(compile_reports.function_of_frame(call["frame"]), ())
        yield
        self._log.note_recompiles(tuple(map(recompilation, call.result)))

    def _graph_break(self, call: Observed) -> Observation:
        told = call.arguments
        error = told["exc"]
        if compile_reports.is_logged(error):
            return
        code = compile_reports.code_of(told["self"])
        if process.is_resumed(code):
            note_resumed(code)
        stack = compile_reports.stack_of_break(error, told["code_options"])
        kind = compile_reports.kind_of_break(error)
        reason = str(told["reason"])
        if _is_of_ours(reason):
            return
        yield
        frames = tuple(frame for each in stack if (frame := _frame(each, code)) is not None)
        self._log.note_break(GraphBreak(reason, frames, kind))


def _is_of_ours(reason: str) -> bool:
    """Tell whether Dynamo gave up at a hook of ours, as in a compiled optimizer's step.

    Nothing of the program's is left out of a graph then: torch calls hooks when the step is done.
    """
    return guard.__file__ in reason


def _frame(told: FrameSummary, code: CodeType) -> Frame | None:
    """Return a frame, if its line is known: after a graph break torch says others.

    Source: ``torch/_dynamo/exc.py``, ``collapse_resume_frames``: what goes on with a function
    has its name there.
    """
    goes_on = (told.filename, told.name) == (code.co_filename, process.resumed(code.co_name))
    function = code.co_name if goes_on else told.name
    line, text = note_break(told.filename, function, told.lineno or 0)
    if line is None:
        return None
    return Frame(told.filename, line, told.name, text or told.line or None)
