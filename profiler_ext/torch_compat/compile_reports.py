"""What torch reports of a compile: its function, failure, graph breaks, cache lookups."""

from __future__ import annotations

from collections.abc import Mapping
from traceback import FrameSummary
from types import CodeType
from typing import Any, NamedTuple

from profiler_ext.torch_compat.names import artifact_names, running_names


def is_frame(span: str) -> bool:
    """Tell whether a span is the compile of a function, or its load."""
    return span in (artifact_names.FRAME_SPAN.text, artifact_names.LOADED_FRAME_SPAN.text)


def is_backward(span: str) -> bool:
    """Tell whether a span is the compile of a backward that first runs."""
    return bool(span == artifact_names.BACKWARD_SPAN.text)


def is_autograd(span: str) -> bool:
    """Tell whether compiled autograd traces a backward in a span."""
    return bool(span == artifact_names.AUTOGRAD_SPAN.text)


def is_graph(span: str) -> bool:
    """Tell whether Inductor compiles, or loads, one graph in a span."""
    return bool(span == artifact_names.GRAPH_SPAN.text)


class CompiledFunction(NamedTuple):
    """The function that is compiled."""

    name: str
    file: str
    line: int


def function_of(metrics: Any) -> CompiledFunction | None:
    """Return the compiled function; ``None`` if torch has not noted it."""
    name = artifact_names.CO_NAME.of(metrics)
    if name is None:
        return None
    file = artifact_names.CO_FILENAME.of(metrics)
    return CompiledFunction(str(name), str(file), int(artifact_names.CO_FIRSTLINENO.of(metrics)))


def function_of_frame(frame: Any) -> CompiledFunction:
    """Return the function of a frame that Dynamo is about to compile."""
    code: CodeType = artifact_names.RECOMPILED_CODE.of(frame)
    return CompiledFunction(code.co_name, code.co_filename, code.co_firstlineno)


def code_of(translator: Any) -> CodeType:
    """Return the code that Dynamo traces."""
    code: CodeType = running_names.FRAME_CODE.of(translator)
    return code


def failure_of(metrics: Any) -> tuple[str, str] | None:
    """Return the type and the text of a compile's error, if it failed."""
    kind = artifact_names.FAIL_TYPE.of(metrics)
    return None if kind is None else (str(kind), str(artifact_names.FAIL_REASON.of(metrics)))


def restarts_of(metrics: Any) -> tuple[str, ...]:
    """Return why Dynamo restarted its trace, each reason once."""
    return tuple(sorted(map(str, artifact_names.RESTART_REASONS.of(metrics) or ())))


def is_logged(error: Any) -> bool:
    """Tell whether torch has logged a graph break already."""
    return bool(artifact_names.LOGGED.of(error))


def kind_of_break(error: Any) -> str | None:
    """Return torch's name for a kind of break, if it has one."""
    kind = artifact_names.BREAK_KIND.of(error)
    return None if kind is None else str(kind)


def stack_of_break(error: Any, options: Mapping[str, Any]) -> list[FrameSummary]:
    """Return the program's frames at a break; ``options`` are the code's, before its first line.

    Source: ``torch/_dynamo/symbolic_convert.py``, ``log_graph_break``.
    """
    stack = artifact_names.REAL_STACK.of(error)
    if stack is None:
        stack = artifact_names.TRACED_STACK.get()()
    if stack:
        return list(stack)
    file, line = artifact_names.BREAK_FILE.of(options), artifact_names.BREAK_LINE.of(options)
    return [FrameSummary(str(file), int(line), "", lookup_line=False)]


def cache_of(event: str) -> tuple[bool, str] | None:
    """Return, for a cache event, whether it is AOTAutograd's cache, and its answer."""
    names = (artifact_names.FX_CACHE_EVENT.text, artifact_names.AUTOGRAD_CACHE_EVENT.text)
    for is_autograd, prefix in enumerate(names):
        if event.startswith(prefix):
            return bool(is_autograd), event.removeprefix(prefix)
    return None


class CacheAnswerDetails(NamedTuple):
    """Why a cache missed or was bypassed, and the time that a hit saved."""

    bypass: str | None
    failed_guard: str | None
    saved_ns: int | None


def answer_of_cache(metadata: Mapping[str, Any]) -> CacheAnswerDetails:
    """Return what torch notes of a cache lookup."""
    bypass = artifact_names.BYPASS_REASON.of(metadata)
    is_guarded = artifact_names.CACHE_STATUS.of(metadata) == artifact_names.GUARD_MISS.text
    guard = artifact_names.CACHE_GUARD.of(metadata) if is_guarded else None
    return CacheAnswerDetails(
        None if bypass is None else str(bypass),
        None if guard is None else str(guard),
        _saved_ns(metadata),
    )


def _saved_ns(metadata: Mapping[str, Any]) -> int | None:
    if (exact := artifact_names.FX_SAVED_NS.of(metadata)) is not None:
        return int(exact)
    rounded = artifact_names.AUTOGRAD_SAVED_MS.of(metadata)  # whole milliseconds, as a float
    return None if rounded is None else int(rounded) * 1_000_000
