"""Source text for display.

The program's files and Inductor's generated modules, read only under the reader's own roots.

A session keeps only the lines of its stacks. A file of this machine is trusted to be the one
that ran when every recorded line still reads the same there. A path in a trace comes from
somebody else, and what is read may end in a report that is passed on: so only Python files are
read, under the roots of the user who reads, and through no link that leaves them.

A session keeps the modules of its graphs; of one that does not, they are read from Inductor's cache
where that is on this machine, under the roots of the user who reads.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from profiler_ext.file_io import read_regular
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import Frame
from profiler_ext.records.recording import Recording, Settings, is_cell
from profiler_ext.source_paths import reading_roots

_LARGEST_BYTES = 8_000_000
_NOT_HERE = "the file is not here, or under no --root"
_CELL_NOT_KEPT = "the text of the cell is not in the session"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One source file as far as it is known."""

    path: str  # as it was recorded
    lines: Mapping[int, str]  # line number to text, in order; every line where the file is whole
    # why there is no more than the recorded lines; ``""`` where the file is whole
    missing: str = ""


def source_files(analysis: Analysis, texts: Mapping[str, str]) -> tuple[SourceFile, ...]:
    """Return the files that have device time, and the user's files that lead there."""
    settings = analysis.recording.settings
    known = recorded_lines(analysis)
    paths = sorted(known, key=lambda path: (not is_user_file(path, settings), path))
    return tuple(_source_file(path, known[path], texts.get(path)) for path in paths)


def sources_of_ranks(
    analyses: Iterable[Analysis], texts: Mapping[str, str]
) -> tuple[SourceFile, ...]:
    """Return the source files of all ranks, each once; see :func:`source_files`."""
    known: dict[str, SourceFile] = {}
    for file in (file for analysis in analyses for file in source_files(analysis, texts)):
        before = known.get(file.path, file)
        lines = dict(sorted({**file.lines, **before.lines}.items()))
        known[file.path] = SourceFile(file.path, lines, before.missing or file.missing)
    return tuple(known.values())


def recorded_lines(analysis: Analysis) -> dict[str, dict[int, str]]:
    """Return file to line number to its recorded text, ``""`` where none was recorded."""
    settings = analysis.recording.settings
    shown = {place.file for place in analysis.places}
    known: dict[str, dict[int, str]] = {}
    for frame in dict.fromkeys(frame for place in analysis.places for frame in _frames(place)):
        if frame.file in shown or is_user_file(frame.file, settings):
            lines = known.setdefault(frame.file, {})
            lines[frame.line] = frame.code or lines.get(frame.line, "")
    return known


def is_user_file(path: str, settings: Settings) -> bool:
    """Return whether a file is the user's: under a root of theirs, or relative to one."""
    if _is_under(path, settings.library_roots):
        return False
    return not Path(path).is_absolute() or _is_under(path, settings.user_roots)


def read_texts(
    paths: Iterable[str], settings: Settings, roots: Iterable[str | Path] = ()
) -> dict[str, str]:
    """Read the Python files that are on this machine, under the roots of the user who reads.

    Args:
        paths: recorded paths; a relative one, and one under a recorded root of the user who
            recorded, is looked for under each root.
        roots: folders that the user who reads has named; the working folder and the
            interpreter's library are roots as well.

    Returns:
        Path to text, without what is not there, not under a root, or no Python file.
    """
    known = reading_roots(roots)
    texts = ((path, _read(path, settings, known)) for path in paths)
    return {path: text for path, text in texts if text is not None}


def local_sources(analyses: Iterable[Analysis], roots: Iterable[str | Path] = ()) -> dict[str, str]:
    """Return the text of the recorded source files that may be read here, by path.

    Returns:
        Path to text; a notebook's cell has the text that the session has of it.
    """
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


def _read(path: str, settings: Settings, roots: Sequence[Path]) -> str | None:
    elsewhere = (root / each for each in _relative(path, settings) for root in roots)
    texts = (_text(place, roots) for place in (Path(path), *elsewhere))
    return next((text for text in texts if text is not None), None)


def _relative(path: str, settings: Settings) -> tuple[str, ...]:
    """Return the path from the root of the user who recorded it."""
    if not Path(path).is_absolute():
        return (path,)
    inner = (root.rstrip("/\\") for root in settings.user_roots if _is_under(path, (root,)))
    return tuple(dict.fromkeys(path[len(root) + 1 :] for root in inner))


def _text(place: Path, roots: Sequence[Path]) -> str | None:
    """Return the text of a Python file that lies under a root, with every link resolved."""
    try:
        resolved = place.resolve(strict=True)
        if resolved.suffix != ".py" or not any(resolved.is_relative_to(root) for root in roots):
            return None
        data = read_regular(resolved, _LARGEST_BYTES)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = io.TextIOWrapper(io.BytesIO(data), encoding).read()
    except (OSError, RuntimeError, SyntaxError, LookupError, ValueError):
        return None  # not readable as Python: as good as absent
    return None if "\0" in text else text


def recorded_modules(recording: Recording) -> dict[str, str]:
    """Return the text of the generated modules that a session keeps, by their paths."""
    with suppress(ImportError):
        return {path: module.text for module in recording.generated for path in module.paths}
    return {}


def module_texts(analysis: Analysis, roots: Iterable[str | Path] = ()) -> dict[str, str]:
    """Return the text of the generated modules of an analysis, by the path that a graph names.

    Returns:
        Path to text, without what is neither kept nor here; nothing where the user asked that no
        text of source be kept.
    """
    recording = analysis.recording
    if any(gap.reason == GapReason.SOURCE_OFF for gap in recording.gaps):
        return {}
    kept = recorded_modules(recording)
    named = dict.fromkeys(filter(None, (graph.output_module for graph in recording.graphs)))
    elsewhere = [path for path in named if path not in kept]
    return read_texts(elsewhere, recording.settings, roots) | kept


def kernel_sources(module_text: str) -> dict[str, str]:
    """Return kernel name to its source, as the generated module hands it to ``async_compile``."""
    try:
        tree = ast.parse(module_text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    kernels = (_kernel(node) for node in ast.walk(tree) if isinstance(node, ast.Assign))
    return dict(pair for pair in kernels if pair is not None)


def _kernel(node: ast.Assign) -> tuple[str, str] | None:
    """Read ``name = async_compile.triton('name', 'code', ...)`` and its like."""
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(func=ast.Attribute(value=ast.Name(id="async_compile")), args=arguments),
        ):
            texts = [each.value for each in arguments if isinstance(each, ast.Constant)]
            code = [text for text in texts if isinstance(text, str) and "\n" in text]
            return (name, code[-1].strip("\n")) if code else None
    return None
