"""Annotated source: each line's device time by phase in the margin."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from profiler_ext.errors import UsageError
from profiler_ext.exporters import sources, table_kinds, tables
from profiler_ext.exporters.json_output.bounds import answer_text
from profiler_ext.exporters.json_output.documents import AnnotatedSource, FileEntry, SourceLine
from profiler_ext.exporters.terminal.console import Console, Text, text_console
from profiler_ext.exporters.views.formatting import PHASE_STYLES, short_path, short_phase, time_text
from profiler_ext.exporters.views.summary import heading, heading_of_ranks, records
from profiler_ext.printable import printable
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.step_kinds import of_usual_kind
from profiler_ext.records.vocabulary import Phase

FORMATS = tuple(each.name for each in table_kinds.PRINT_FORMATS if each.is_of_source)
_TIME_WIDTH = 7
_TAB = 4
Times = Mapping[Phase, int]


@dataclass(frozen=True, slots=True)
class AnnotatedSourceFile:
    """A source file and the device time of its lines."""

    source: sources.SourceFile
    times: Mapping[int, Times]  # by line number; only phases with time

    @property
    def duration_ns(self) -> int:
        """Device time of all lines."""
        return sum(sum(each.values()) for each in self.times.values())


def annotated(
    analyses: Sequence[Analysis], texts: Mapping[str, str], files: Sequence[str] = ()
) -> list[AnnotatedSourceFile]:
    """Return the source files with device time, the user's own first.

    ``files`` are names or path suffixes; by default all files with device time.
    """
    times: dict[str, dict[int, Times]] = {}
    for row in records(tables.of_ranks(analyses, 0, "by_line")):
        if row["file"] is not None:
            spent = {phase: row[phase] for phase in Phase if row[phase]}
            times.setdefault(row["file"], {})[row["line"]] = spent
    all_files = [
        AnnotatedSourceFile(f, times.get(f.path, {}))
        for f in sources.sources_of_ranks(analyses, texts)
    ]
    if not files:
        return [each for each in all_files if each.times]
    return [each for name in files for each in _named(name, all_files)]


def annotate(
    analyses: Sequence[Analysis],
    texts: Mapping[str, str],
    files: Sequence[str] = (),
    format: str = "text",
    width: int = 120,
    budget: int | None = None,
) -> str:
    """Return annotated source as text.

    Raises:
        UsageError: There is no such format, or no such file.
    """
    if format not in FORMATS:
        raise UsageError(f"there is no format {format!r}; ask for {' or '.join(FORMATS)}")
    if format == "json":
        entries = [_entry(each) for each in annotated(analyses, texts, files)]
        return answer_text(AnnotatedSource(files=entries), budget)
    file = io.StringIO()
    console = text_console(file, width)
    print_annotated(analyses, console, texts, files)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def print_annotated(
    analyses: Sequence[Analysis],
    console: Console,
    texts: Mapping[str, str],
    files: Sequence[str] = (),
) -> None:
    """Print annotated source."""
    chosen = annotated(analyses, texts, files)
    heading_text = heading(analyses[0]) if len(analyses) == 1 else heading_of_ranks(analyses)
    _print_line(console, Text(heading_text, style="bold"))
    if not chosen:
        _print_line(console, Text("No device time is attributed to a source line."))
    for each in chosen:
        _print_file(each, analyses, console)


def _named(name: str, all_files: Iterable[AnnotatedSourceFile]) -> list[AnnotatedSourceFile]:
    def fits(path: str) -> bool:
        return path == name or path.replace("\\", "/").endswith("/" + name.removeprefix("./"))

    all_files = list(all_files)
    named = [each for each in all_files if fits(each.source.path)]
    if not named:
        known = ", ".join(printable(each.source.path) for each in all_files) or "none"
        raise UsageError(f"the session has no source file {name!r}; it has: {known}")
    return named


def _print_file(each: AnnotatedSourceFile, analyses: Sequence[Analysis], console: Console) -> None:
    name = short_path(each.source.path, analyses[0].recording.settings)
    usual = map(of_usual_kind, analyses)  # as the table of lines
    count = len({step.number for analysis in usual for step in analysis.steps})
    ranks = f" of {len(analyses)} ranks" if len(analyses) > 1 else ""
    steps = f"{count} step{'s' if count != 1 else ''}{ranks}"
    title = f"{name}: {time_text(each.duration_ns)} in {steps}"
    console.print()
    _print_line(console, Text(printable(title), style="bold"))
    if each.source.missing:
        _print_line(
            console,
            Text(f"only the recorded lines are known: {each.source.missing}", style="yellow"),
        )
    phases = [p for p in Phase if any(p in times for times in each.times.values())]
    _print_line(console, _heads(phases))
    margin, before = sum(len(_cell(0, phase)) + 2 for phase in phases), 0
    for number, text in each.source.lines.items():
        if before and number > before + 1:
            _print_line(console, Text(f"{'':{margin}}   ...", style="dim"))
        _print_line(console, _line(number, text, each.times.get(number, {}), phases))
        before = number


def _heads(phases: Sequence[Phase]) -> Text:
    widths = ((phase, len(_cell(0, phase))) for phase in phases)
    cells = (Text(short_phase(p).rjust(width), style=PHASE_STYLES[p]) for p, width in widths)
    return Text("  ").join((*cells, Text(" line  code", style="bold")))


def _line(number: int, text: str, times: Times, phases: Sequence[Phase]) -> Text:
    cells = (Text(_cell(times.get(p, 0), p), style=PHASE_STYLES[p]) for p in phases)
    code = Text(printable(text.expandtabs(_TAB)), style="" if times else "dim")
    return Text("  ").join((*cells, Text(f"{number:>5}"), code))


def _cell(duration_ns: int, phase: Phase) -> str:
    width = max(_TIME_WIDTH, len(short_phase(phase)))
    return (time_text(duration_ns) if duration_ns else "").rjust(width)


def _print_line(console: Console, line: Text) -> None:
    console.print(line, no_wrap=True, overflow="ellipsis")


def _entry(each: AnnotatedSourceFile) -> FileEntry:
    lines = [
        SourceLine(line=number, text=text, phases_ns=_by_phase(each.times.get(number, {})))
        for number, text in each.source.lines.items()
    ]
    return FileEntry(
        path=each.source.path,
        is_complete=not each.source.missing,
        missing=each.source.missing or None,
        duration_ns=each.duration_ns,
        lines=lines,
    )


def _by_phase(times: Times) -> dict[str, int]:
    return {phase.value: time for phase, time in times.items()}
