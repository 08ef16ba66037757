"""Owns the source files of report.html: whole as far as there is room, the rest in parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from profiler_ext.exporters.display_text import short_path
from profiler_ext.exporters.sources import (
    SourceFile,
    is_user_file,
    recorded_lines,
    sources_of_ranks,
)
from profiler_ext.printable import printable
from profiler_ext.records import Analysis, Settings

MAX_SOURCE_CHARS = 4_000_000  # letters
_NO_ROOM = f"the page carries {MAX_SOURCE_CHARS // 1_000_000} MB of source, the user's own first"


def files_shown(
    analyses: Sequence[Analysis], texts: Mapping[str, str], most: int = MAX_SOURCE_CHARS
) -> list[SourceFile]:
    """Return the source files, the user's own first; beyond a bound only their recorded lines.

    Args:
        analyses: one for each rank.
        texts: recorded path to the text of that file.
        most: so many letters of whole files.
    """
    every = sources_of_ranks(analyses, texts)
    recorded: dict[str, dict[int, str]] = {}
    for analysis in analyses:
        for path, lines in recorded_lines(analysis).items():
            recorded.setdefault(path, {}).update(lines)
    return list(_bounded(every, recorded, most))


def _bounded(
    every: Sequence[SourceFile], recorded: Mapping[str, Mapping[int, str]], room: int
) -> Iterator[SourceFile]:
    for file in every:
        size = sum(map(len, file.lines.values()))
        if file.missing or size <= room:
            room -= size
            yield file
        else:
            lines = dict(sorted(recorded[file.path].items()))
            yield replace(file, lines=lines, missing=_NO_ROOM)


def file_row(file: SourceFile, settings: Settings) -> dict[str, Any]:
    """Return a source file as the page carries it.

    Args:
        file: the file.
        settings: has the roots, which shorten its name and tell whether it is the user's own.
    """
    return {
        "path": printable(file.path),
        "name": printable(short_path(file.path, settings)),
        "own": is_user_file(file.path, settings),
        "missing": file.missing,
        "numbers": list(file.lines) if file.missing else [],
        "lines": [printable(line.expandtabs()) for line in file.lines.values()],
    }
