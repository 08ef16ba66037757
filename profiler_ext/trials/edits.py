"""The edit that a remedy asks for: a diff of the user's files where it can be written safely.

A call is edited where the running script made it: the file, line and columns of the instruction
are those of one call in the source, and it has the name that the remedy knows. All else is left to
the user, in words.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from profiler_ext.trials.remedy import Keyword, Remedy, Site

_Change = tuple[int, int, bytes]  # from and to in the file, and what stands there instead


@dataclass(frozen=True, slots=True)
class Edits:
    """What to change in the script."""

    diff: str  # unified; empty where no edit can be written
    by_hand: tuple[str, ...]  # the remedies that are not in it


@dataclass(slots=True)
class _Source:
    """A file and its edits."""

    path: Path
    text: bytes
    tree: ast.Module
    # Arguments of each call that is edited, by its node's position
    arguments: dict[tuple[int, int], list[Keyword]] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> _Source | None:
        """Read a file; ``None`` where it is no source that Python reads."""
        try:
            text = path.read_bytes()
            return cls(path, text, ast.parse(text))
        except (OSError, SyntaxError, ValueError):
            return None

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a place; columns are in UTF-8, and so is what can be edited."""
        return sum(map(len, self.text.splitlines(keepends=True)[: line - 1])) + column

    def span(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        """Return where a node begins and ends."""
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self.offset(node.lineno, node.col_offset), self.offset(end_line, end_column)


def edits_of(
    remedies: Iterable[tuple[Remedy, Sequence[Site]]], script: Path | None, folder: Path
) -> Edits:
    """Return the edits of remedies: what their calls' files, and the script, become.

    Args:
        remedies: each with the places of the calls that it patched.
        script: the program's file; ``None`` of a module.
        folder: where the program was started, which the diff names files from.
    """
    sources: dict[Path, _Source] = {}
    by_hand = []
    for remedy, sites in remedies:
        if not (_add_keyword(remedy, sites, sources) or _add_statement(remedy, script, sources)):
            by_hand.append(remedy.name)
    parts = [_diff(each, folder) for each in sources.values()]
    if None in parts:  # what was edited is no Python any more
        return Edits("", tuple(each.name for each, _ in remedies))
    return Edits("".join(each for each in parts if each), tuple(by_hand))


def _source(path: Path, sources: dict[Path, _Source]) -> _Source | None:
    if path not in sources and (source := _Source.read(path)) is not None:
        sources[path] = source
    return sources.get(path)


def _add_keyword(remedy: Remedy, sites: Sequence[Site], sources: dict[Path, _Source]) -> bool:
    """Note the argument at each call, if all calls are there and take it."""
    keyword = remedy.keyword
    if keyword is None or not sites:
        return False
    calls = []
    for site in sites:
        source = _source(Path(site.file), sources)
        call = None if source is None else _call_at(source.tree, site)
        if source is None or call is None or not _takes(call, keyword):
            return False
        calls.append((source, call))
    for source, call in calls:
        source.arguments.setdefault((call.lineno, call.col_offset), []).append(keyword)
    return True


def _call_at(tree: ast.Module, site: Site) -> ast.Call | None:
    """Return the call at a site."""
    place = (site.line, site.end_line, site.column, site.end_column)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            own = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
            if own == place:
                return node
    return None


def _takes(call: ast.Call, keyword: Keyword) -> bool:
    """Tell whether a call has a name of the keyword's, and its arguments are all in sight."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    is_dict = keyword.value.startswith("{")
    given = {each.arg for each in call.keywords}
    is_excluded = is_dict and bool(given & {"mode", "options"})
    is_hidden = len(call.args) > keyword.max_positional
    return name in keyword.calls and None not in given and not is_excluded and not is_hidden


def _add_statement(remedy: Remedy, script: Path | None, sources: dict[Path, _Source]) -> bool:
    """Note a statement after the script's imports, if these have torch by its name."""
    if not remedy.statement or script is None:
        return False
    source = _source(script, sources)
    if source is None or _after_imports(source.tree) is None:
        return False
    source.statements.append(remedy.statement)
    return True


def _after_imports(tree: ast.Module) -> int | None:
    """Return the last line of the first imports; ``None`` where they do not import torch."""
    last, has_torch = None, False
    for node in tree.body:
        is_import = isinstance(node, (ast.Import, ast.ImportFrom))
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_import:
            last = node.end_lineno
            names = node.names if isinstance(node, ast.Import) else []
            has_torch |= any((each.asname or each.name) == "torch" for each in names)
        elif not is_docstring and has_torch:
            break
    return last if has_torch else None


def _diff(source: _Source, folder: Path) -> str | None:
    """Return the diff of a file, empty without a change; ``None`` where the result is no Python."""
    changes = [*_argument_changes(source), *_statement_changes(source)]
    text = source.text
    for begin, end, inserted in sorted(changes, reverse=True):
        text = text[:begin] + inserted + text[end:]
    try:
        ast.parse(text)
        old, new = (each.decode().splitlines(keepends=True) for each in (source.text, text))
    except (SyntaxError, ValueError):
        return None
    path = source.path
    name = path.relative_to(folder) if path.is_relative_to(folder) else path
    prefixes = ("a/", "b/") if path.is_relative_to(folder) else ("", "")
    before, after = (f"{each}{name.as_posix()}" for each in prefixes)
    return "".join(_lines(difflib.unified_diff(old, new, before, after)))


def _lines(diff: Iterable[str]) -> Iterator[str]:
    for line in diff:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _argument_changes(source: _Source) -> Iterator[_Change]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            wanted = source.arguments.get((node.lineno, node.col_offset), [])
            if wanted and source.text[source.span(node)[1] - 1 : source.span(node)[1]] == b")":
                yield from _changes_of(source, node, _merged(wanted))


def _merged(wanted: Sequence[Keyword]) -> Mapping[str, str]:
    """Return the value of each argument: dictionaries of options become one."""
    values: dict[str, str] = {}
    for each in wanted:
        known = values.get(each.argument)
        is_added = known is not None and each.value.startswith("{")
        values[each.argument] = f"{known[:-1]}, {each.value[1:]}" if is_added and known else (
            each.value
        )  # fmt: skip
        for replaced in each.replaces:
            values.setdefault(replaced, "")  # to be removed
    return values


def _changes_of(source: _Source, call: ast.Call, values: Mapping[str, str]) -> Iterator[_Change]:
    """Yield the changes of a call's arguments: changed in place, and added at its end."""
    given = {each.arg: each for each in call.keywords}
    removed = [name for name, value in values.items() if not value and name in given]
    added = [f"{name}={value}" for name, value in values.items() if value and name not in given]
    for name, value in values.items():
        if value and name in given:
            yield (*source.span(given[name].value), value.encode())
    for name in removed:  # an added argument takes its place
        place = source.span(given[name] if added else given[name].value)
        yield (*place, (added.pop(0) if added else "None").encode())
    if added:
        ends = [source.span(each)[1] for each in call.args]
        ends += [source.span(each)[1] for each in call.keywords]
        end = max(ends, default=None)
        text = ", ".join(added)
        if end is None:
            end = source.span(call)[1] - 1
        else:
            text = f", {text}"
        yield end, end, text.encode()


def _statement_changes(source: _Source) -> Iterator[_Change]:
    line = _after_imports(source.tree)
    if source.statements and line is not None:
        at = source.offset(line + 1, 0)
        is_open = not source.text[:at].endswith(b"\n")
        text = "".join(f"{each}\n" for each in source.statements)
        yield at, at, (b"\n" if is_open else b"") + text.encode()
