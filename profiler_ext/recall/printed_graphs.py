"""Owns the reading of a graph that torch printed: the text, never run, to nodes and edges."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from profiler_ext.files.paths import absolute, shorten
from profiler_ext.records import Frame

_LINE = re.compile(
    r"#.*?\bFile: (?P<file>.+?):(?P<line>\d+) in (?P<function>.+?), code: (?P<code>.*)"
)
_UNNAMED = re.compile(r"class <\w+>\(")
_NO_LINE = "# No stacktrace found"


@dataclass(frozen=True, slots=True)
class PrintedNode:
    """A node of a printed graph.

    Attributes:
        name: its name.
        target: the op in FX spelling; ``getitem`` for a subscript.
        call: the expression that yields its value.
        inputs: names of the nodes that it reads, in the order of its arguments.
        frame: the innermost frame of its stack, which is all that is printed.
    """

    name: str
    target: str
    call: str
    inputs: tuple[str, ...]
    frame: Frame | None = None


@dataclass(frozen=True, slots=True)
class PrintedGraph:
    """A printed graph: its nodes by name, in order, and the names of its inputs."""

    nodes: Mapping[str, PrintedNode]
    inputs: frozenset[str] = frozenset()


def read_graph(text: str) -> PrintedGraph | None:
    """Read what ``GraphModule.print_readable`` wrote.

    Args:
        text: a class with a ``forward``; graphs that it nests are left out.

    Returns:
        The graph; ``None`` where the text is not Python.
    """
    try:
        tree = ast.parse(_UNNAMED.sub("class _(", text))
    except (SyntaxError, ValueError):
        return None
    function = next((f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)), None)
    if function is None:
        return None
    inputs = frozenset(a.arg for a in function.args.args if a.arg != "self")
    frames, nodes = _Frames(text.splitlines()), dict[str, PrintedNode]()
    for name, value, line in _assignments(function.body):
        read = tuple(each for each in _names(value) if each in nodes or each in inputs)
        call, frame = ast.unparse(value), frames.before(line)
        nodes[name] = PrintedNode(name, _target(value), call, read, frame)
    return PrintedGraph(nodes, inputs)


def _assignments(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr, int]]:
    """The statements that make a value; ``x = None`` frees one."""
    for statement in body:
        targets: list[ast.expr] = []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        elif isinstance(statement, ast.Assign):
            targets = statement.targets
        value: Any = getattr(statement, "value", None)
        is_call = isinstance(value, ast.Call | ast.Subscript | ast.BinOp)
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and is_call:
            yield targets[0].id, value, statement.lineno


def _names(value: ast.AST) -> Iterator[str]:
    """The names in an expression, in the order of the text."""
    if isinstance(value, ast.Name):
        yield value.id
    for child in ast.iter_child_nodes(value):
        yield from _names(child)


def _target(value: ast.expr) -> str:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).removeprefix("torch.ops.").removeprefix("operator.")
    return "getitem" if isinstance(value, ast.Subscript) else type(value).__name__


class _Frames:
    """The frames that comments give for the statements after them."""

    def __init__(self, lines: list[str]) -> None:
        self._lines, self._read, self._frame = lines, 0, None

    _frame: Frame | None

    def before(self, line: int) -> Frame | None:
        """Return the frame in force at a line; lines are asked for in order."""
        for text in self._lines[self._read : line]:
            if (match := _LINE.search(text)) is not None:
                file = shorten(absolute(match["file"]))
                code = match["code"].strip() or None
                self._frame = Frame(file, int(match["line"]), match["function"], code)
            elif _NO_LINE in text:
                self._frame = None
        self._read = line
        return self._frame
