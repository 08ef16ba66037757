"""Source text for display: the program's files and Inductor's generated modules.

A session keeps only the lines of its stacks. A local file counts as the one that ran if every
recorded line still reads the same. Paths in a trace are untrusted, and what is read may end in a
report that is passed on: so only Python files are read, under the reader's own roots, and through
no link that leaves them. Generated modules that a session does not keep are read from Inductor's
cache, under the same rule.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from profiler_ext import file_io, source_paths
from profiler_ext.records import gaps, lineage
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.recording import Recording, Settings, is_cell

_LARGEST_BYTES = 8_000_000
_NOT_HERE = "the file is not here, or under no --root"
_CELL_NOT_KEPT = "the text of the cell is not in the session"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A source file, as far as it is known."""

    path: str  # as recorded
    lines: Mapping[int, str]  # by line number; all lines if the file is complete
    missing: str = ""  # why only recorded lines are known


def source_files(analysis: Analysis, texts: Mapping[str, str]) -> tuple[SourceFile, ...]:
    """Return the files with device time, and the user's files that call them."""
    settings = analysis.recording.settings
    known = recorded_lines(analysis)
    paths = sorted(known, key=lambda path: (not is_user_file(path, settings), path))
    return tuple(_source_file(path, known[path], texts.get(path)) for path in paths)


def sources_of_ranks(
    analyses: Iterable[Analysis], texts: Mapping[str, str]
) -> tuple[SourceFile, ...]:
    """Return the source files of all ranks, each once."""
    known: dict[str, SourceFile] = {}
    for file in (file for analysis in analyses for file in source_files(analysis, texts)):
        before = known.get(file.path, file)
        lines = dict(sorted({**file.lines, **before.lines}.items()))
        known[file.path] = SourceFile(file.path, lines, before.missing or file.missing)
    return tuple(known.values())


def recorded_lines(analysis: Analysis) -> dict[str, dict[int, str]]:
    """Return the recorded lines by file and line number; ``""`` where the text was not recorded."""
    settings = analysis.recording.settings
    shown = {place.file for place in analysis.places}
    known: dict[str, dict[int, str]] = {}
    for frame in dict.fromkeys(frame for place in analysis.places for frame in _frames(place)):
        if frame.file in shown or is_user_file(frame.file, settings):
            lines = known.setdefault(frame.file, {})
            lines[frame.line] = frame.code or lines.get(frame.line, "")
    return known


def is_user_file(path: str, settings: Settings) -> bool:
    """Return whether a file is the user's: under one of the user's roots, or relative."""
    if _is_under(path, settings.library_roots):
        return False
    return not Path(path).is_absolute() or _is_under(path, settings.user_roots)


def read_texts(
    paths: Iterable[str], settings: Settings, roots: Iterable[str | Path] = ()
) -> dict[str, str]:
    """Read the Python files that are on this machine, under the reader's roots.

    Relative ``paths``, and those under a recorded user root, are looked up under each root:
    ``roots``, the working folder and the interpreter's library.
    """
    known = source_paths.reading_roots(roots)
    texts = ((path, _read(path, settings, known)) for path in paths)
    return {path: text for path, text in texts if text is not None}


def local_sources(analyses: Iterable[Analysis], roots: Iterable[str | Path] = ()) -> dict[str, str]:
    """Return recorded source files that may be read here, and notebook cells, by path."""
    sources: dict[str, str] = {}
    for analysis in analyses:
        sources |= read_texts(recorded_lines(analysis), analysis.recording.settings, roots)
        cells = analysis.recording.cells
        sources |= {cell.name: "\n".join(cell.lines) for cell in cells if cell.lines}
    return sources


def _source_file(path: str, known: Mapping[int, str], text: str | None) -> SourceFile:
    recorded = dict(sorted(known.items()))
    if text is None:
        return SourceFile(path, recorded, _CELL_NOT_KEPT if is_cell(path) else _NOT_HERE)
    lines = dict(enumerate(text.removesuffix("\n").split("\n"), start=1))
    mismatch = next(filter(None, (_mismatch(*each, lines) for each in recorded.items())), "")
    return SourceFile(path, recorded, mismatch) if mismatch else SourceFile(path, lines)


def _mismatch(number: int, code: str, lines: Mapping[int, str]) -> str:
    """Return why a recorded line does not confirm that this file ran."""
    if not code.strip():
        return f"the text of line {number} was not recorded, so the file cannot be checked"
    if code.strip() != lines.get(number, "").strip():
        return f"the file has changed since: line {number} is not what was recorded"
    return ""


def _frames(place: Place) -> tuple[lineage.Frame, ...]:
    if place.file is None or place.line is None:
        return place.stack
    own = lineage.Frame(place.file, place.line, place.function or "", place.code)
    return (*place.stack, own)


def _is_under(path: str, roots: Iterable[str]) -> bool:
    return any(path.startswith(root.rstrip("/\\") + sep) for root in roots for sep in "/\\")


def _read(path: str, settings: Settings, roots: Sequence[Path]) -> str | None:
    elsewhere = (root / each for each in _relative(path, settings) for root in roots)
    texts = (_text(place, roots) for place in (Path(path), *elsewhere))
    return next((text for text in texts if text is not None), None)


def _relative(path: str, settings: Settings) -> tuple[str, ...]:
    """Return a path relative to the recorded user roots that hold it."""
    if not Path(path).is_absolute():
        return (path,)
    inner = (root.rstrip("/\\") for root in settings.user_roots if _is_under(path, (root,)))
    return tuple(dict.fromkeys(path[len(root) + 1 :] for root in inner))


def _text(place: Path, roots: Sequence[Path]) -> str | None:
    """Return the text of a Python file under a root, after resolving links."""
    try:
        resolved = place.resolve(strict=True)
        if resolved.suffix != ".py" or not any(resolved.is_relative_to(root) for root in roots):
            return None
        data = file_io.read_regular(resolved, _LARGEST_BYTES)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = io.TextIOWrapper(io.BytesIO(data), encoding).read()
    except (OSError, RuntimeError, SyntaxError, LookupError, ValueError):
        return None  # not readable as Python: as good as absent
    return None if "\0" in text else text


def recorded_modules(recording: Recording) -> dict[str, str]:
    """Return the generated modules that a session keeps, by path."""
    with suppress(ImportError):
        return {path: module.text for module in recording.generated for path in module.paths}
    return {}


def module_texts(analysis: Analysis, roots: Iterable[str | Path] = ()) -> dict[str, str]:
    """Return the generated modules of an analysis by path; none where source is turned off."""
    recording = analysis.recording
    if any(gap.reason == gaps.GapReason.SOURCE_OFF for gap in recording.gaps):
        return {}
    kept = recorded_modules(recording)
    named = dict.fromkeys(filter(None, (graph.output_module for graph in recording.graphs)))
    elsewhere = [path for path in named if path not in kept]
    return read_texts(elsewhere, recording.settings, roots) | kept


def kernel_sources(module_text: str) -> dict[str, str]:
    """Return kernel name to source, as passed to ``async_compile`` in a generated module."""
    try:
        tree = ast.parse(module_text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    kernels = (_kernel(node) for node in ast.walk(tree) if isinstance(node, ast.Assign))
    return dict(pair for pair in kernels if pair is not None)


def _kernel(node: ast.Assign) -> tuple[str, str] | None:
    """Read ``name = async_compile.triton('name', 'code', ...)`` and similar calls."""
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(func=ast.Attribute(value=ast.Name(id="async_compile")), args=arguments),
        ):
            texts = [each.value for each in arguments if isinstance(each, ast.Constant)]
            code = [text for text in texts if isinstance(text, str) and "\n" in text]
            return (name, code[-1].strip("\n")) if code else None
    return None
