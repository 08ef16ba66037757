"""Compilations as text: a summary, and details of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from profiler_ext.exporters.compiled import profiled_ns, rows
from profiler_ext.exporters.views.formatting import short_path, time_text
from profiler_ext.printable import printable
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.compiles import (
    CacheAnswer,
    Compilation,
    CompileCache,
    CompileKind,
    CompilePhase,
)
from profiler_ext.records.recording import Settings

_MAX_PHASES = 3
_MAX_CHARS = 240
_MIN_STEPS_WORTH = 10  # below so many steps a compile has paid its time many times over


def compile_text_of_ranks(analyses: Sequence[Analysis]) -> str | None:
    """Return the summary of the rank that compiled longest: ranks compile in parallel."""

    def blocked_ns(analysis: Analysis) -> int:
        return sum(each.duration_ns for each in rows(analysis) if each.is_blocking)

    longest = max(analyses, key=blocked_ns)
    sentence = compile_text(longest)
    rank = longest.recording.settings.rank
    return None if sentence is None else f"rank {rank}, which compiled for longest: {sentence}"


def compile_text(analysis: Analysis) -> str | None:
    """Return a one-line compile summary, ``None`` without compilations."""
    compiled = [each for each in rows(analysis) if each.is_blocking]
    if not compiled:
        return None
    records = [record for each in compiled for record in each.every]
    graphs = _graphs_text(analysis, records)
    total = sum(each.duration_ns for each in compiled)
    spent = {phase: sum(each.phase_ns(phase) for each in compiled) for phase in CompilePhase}
    inside = sum(profiled_ns(analysis, each) for each in compiled)
    parts = [
        f"compiling took {time_text(total)} for {graphs} ({phases_text(spent)})",
        f"{time_text(inside)} of it in profiled steps" if inside else "",
    ]
    summary = ", ".join(filter(None, parts))
    more = "; ".join(filter(None, (_recompile_counts(records), *_caches(records))))
    return printable(f"{summary}: {more}" if more else summary)


def _graphs_text(analysis: Analysis, records: Iterable[Compilation]) -> str:
    """Return the number of compiled graphs, and how many run in the profiled steps.

    A process may have compiled other graphs: another model, earlier sizes.
    """
    made = [graph for record in records for graph in record.graphs]
    in_steps = analysis.launches.in_steps
    launching = set(analysis.launches.graph[in_steps].compressed().tolist())
    ran = sum(graph in launching for graph in made)
    summary = counted(len(made), "graph")
    if ran == len(made):
        return summary
    if len(made) == 1:
        return f"{summary}, which ran in no profiled step"
    return f"{summary}, of which {ran or 'none'} ran in the profiled steps"


def counted(number: int, word: str) -> str:
    """Return a number with its noun, in the plural if needed."""
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}{'e' * word.endswith('s')}s"
    return f"{number:,} {word if number == 1 else plural}"


def phases_text(spent: Mapping[CompilePhase, int]) -> str:
    """Return the longest phases and their times."""
    longest = sorted(spent, key=lambda phase: -spent[phase])[:_MAX_PHASES]
    return ", ".join(
        f"{phase.label} {time_text(spent[phase])}" for phase in longest if spent[phase]
    )


def _recompile_counts(records: Iterable[Compilation]) -> str:
    phrases = [
        (sum(bool(each.recompiles) for each in records), "recompilation"),
        (sum(len(each.breaks) for each in records), "graph break"),
        (sum(each.failure is not None for each in records), "failed compile"),
    ]
    return ", ".join(counted(number, word) for number, word in phrases if number)


def _caches(records: Iterable[Compilation]) -> Iterator[str]:
    answers = Counter((each.cache, each.answer) for of in records for each in of.lookups)
    for cache in CompileCache:
        summary = [(answers[cache, answer], answer) for answer in CacheAnswer]
        sentence = ", ".join(
            (answer.label if answer is CacheAnswer.DISABLED else counted(number, answer.label))
            for number, answer in summary
            if number
        )
        if sentence:
            yield f"{cache.label}: {sentence}"


def name_text(row: Mapping[str, Any], settings: Settings) -> str:
    """Return a compilation's name: function, place, kind."""
    kind = CompileKind(row["compile_kind"])
    of = f" ({row['compile_id']})" if row["compile_id"] else ""
    if row["function"] is None or row["file"] is None:
        return f"({kind.label}){of}"
    place = f"{short_path(row['file'], settings)}:{row['line']}"
    what = "" if kind is CompileKind.FRAME else f": {kind.label}"
    at = "from" if row["resumed"] else "at"
    return f"{row['function']} {at} {place}{of}{what}"


def detail_texts(row: Mapping[str, Any], settings: Settings) -> list[str]:
    """Return a compilation's details: recompile reason, breaks, cache results, use."""
    phrases = [
        row["recompiles"] and f"again, as {row['recompiles']} failed: {row['recompile_reason']}",
        _break_text(row, settings),
        row["failure"] and f"gave nothing: {_first_line(row['failure'])}",
        row["cache_detail"],
        _use_text(row),
    ]
    return [_short(text) for text in phrases if text]


def _break_text(row: Mapping[str, Any], settings: Settings) -> str | None:
    if not row["graph_breaks"]:
        return None
    place = row["break_file"]
    at = "" if place is None else f" at {short_path(place, settings)}:{row['break_line']}"
    breaks = counted(row["graph_breaks"], "graph break")
    return f"{breaks}{at}: {_cause(row['break_reason'])}"


def _cause(reason: str) -> str:
    """Return the reason of a graph break, without torch's heading paragraph."""
    paragraphs = [part.strip() for part in reason.split("\n\n") if part.strip()]
    has_heading = len(paragraphs) > 1 and paragraphs[0].endswith(":")
    return _first_line(paragraphs[1] if has_heading else reason)


def _use_text(row: Mapping[str, Any]) -> str | None:
    if not row["graphs"] or not row["per_step_ns"]:
        return "its graphs ran in no profiled step" if row["graphs"] else None
    once = f"its graphs run {time_text(row['per_step_ns'])} a step"
    if row["as_steps"] < _MIN_STEPS_WORTH:
        return once
    return f"{once}: the compile took as long as {row['as_steps']:,.0f} of those"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _short(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= _MAX_CHARS else f"{line[: _MAX_CHARS - 1]}\u2026"
