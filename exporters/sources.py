"""Owns the text of source files: whole where the recorded lines still stand in it, else in parts.

A session keeps only the lines of its stacks. A file of this machine is trusted to be the one
that ran when every recorded line still reads the same there. Only Python files are read: a path
in a trace comes from somebody else, and what is read may end in a report that is passed on.
"""

from __future__ import annotations

import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from profiler_ext.records import Analysis, Frame, Place, Settings

_LARGEST_BYTES = 8_000_000


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One source file as far as it is known.

    Attributes:
        path: as it was recorded.
        lines: line number to text, in order; every line where the file is whole.
        missing: why there is no more than the recorded lines; ``""`` where the file is whole.
    """

    path: str
    lines: Mapping[int, str]
    missing: str = ""


def source_files(analysis: Analysis, texts: Mapping[str, str]) -> tuple[SourceFile, ...]:
    """Return the files that have device time, and the user's files that lead there.

    Args:
        analysis: what attribution found.
        texts: recorded path to the text of that file now; a path may be absent.

    Returns:
        The user's own files first, each group by path.
    """
    settings = analysis.recording.settings
    known = recorded_lines(analysis)
    paths = sorted(known, key=lambda path: (not is_users_own(path, settings), path))
    return tuple(_source_file(path, known[path], texts.get(path)) for path in paths)


def recorded_lines(analysis: Analysis) -> dict[str, dict[int, str]]:
    """Return file to line number to its recorded text, ``""`` where none was recorded."""
    settings = analysis.recording.settings
    shown = {place.file for place in analysis.places}
    known: dict[str, dict[int, str]] = {}
    for frame in dict.fromkeys(frame for place in analysis.places for frame in _frames(place)):
        if frame.file in shown or is_users_own(frame.file, settings):
            lines = known.setdefault(frame.file, {})
            lines[frame.line] = frame.code or lines.get(frame.line, "")
    return known


def is_users_own(path: str, settings: Settings) -> bool:
    """Return whether a file is the user's: under a root of theirs, or relative to one."""
    if _is_under(path, settings.library_roots):
        return False
    return not Path(path).is_absolute() or _is_under(path, settings.user_roots)


def read_texts(paths: Iterable[str], settings: Settings) -> dict[str, str]:
    """Read the Python files that are on this machine.

    Args:
        paths: recorded paths; a relative one is looked for under the user's roots.
        settings: whose roots count.

    Returns:
        Path to text, without what is not there, not readable or no Python file.
    """
    texts = ((path, _read(path, settings)) for path in paths)
    return {path: text for path, text in texts if text is not None}


def sources_here(*analyses: Analysis) -> dict[str, str]:
    """Return the text of the recorded source files that are on this machine, by path."""
    found: dict[str, str] = {}
    for analysis in analyses:
        found |= read_texts(recorded_lines(analysis), analysis.recording.settings)
    return found


def _source_file(path: str, known: Mapping[int, str], text: str | None) -> SourceFile:
    recorded = dict(sorted(known.items()))
    if text is None:
        return SourceFile(path, recorded, "the file is not on this machine")
    lines = dict(enumerate(text.removesuffix("\n").split("\n"), start=1))
    doubt = next(filter(None, (_doubt(*each, lines) for each in recorded.items())), "")
    return SourceFile(path, recorded, doubt) if doubt else SourceFile(path, lines)


def _doubt(number: int, code: str, lines: Mapping[int, str]) -> str:
    """Return why a recorded line does not show that this is the file that ran."""
    if not code.strip():
        return f"the text of line {number} was not recorded, so the file cannot be checked"
    if code.strip() != lines.get(number, "").strip():
        return f"the file has changed since: line {number} is not what was recorded"
    return ""


def _frames(place: Place) -> tuple[Frame, ...]:
    if place.file is None or place.line is None:
        return place.stack
    own = Frame(place.file, place.line, place.function or "", place.code)
    return (*place.stack, own)


def _is_under(path: str, roots: Iterable[str]) -> bool:
    return any(path.startswith(root.rstrip("/\\") + sep) for root in roots for sep in "/\\")


def _read(path: str, settings: Settings) -> str | None:
    if not path.endswith(".py"):
        return None
    for place in (Path(root, path) for root in (settings.user_roots or ("",))):
        try:
            if place.is_file() and place.stat().st_size <= _LARGEST_BYTES:
                with tokenize.open(place) as file:
                    return file.read()
        except (OSError, SyntaxError, ValueError):  # not readable as Python: as good as absent
            continue
    return None
