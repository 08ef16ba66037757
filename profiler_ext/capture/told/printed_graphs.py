"""Owns the reading of a graph that torch printed: the text, never run, to nodes and edges."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from profiler_ext.files.paths import absolute, shorten
from profiler_ext.records import Frame

_LINE = re.compile(
    r"#.*?\bFile: (?P<file>.+?):(?P<line>\d+) in (?P<function>.+?), code: (?P<code>.*)"
)
_UNNAMED = re.compile(r"class <\w+>\(")
_NUMBERED = ("prims.inductor_lookup_seed.default",)
_NO_LINE = "# No stacktrace found"
_SPEC = re.compile(r"(?P<dtype>[a-z]+\d*[a-z0-9]*)\[(?P<size>[\d, ]*)\]")


@dataclass(frozen=True, slots=True)
class PrintedNode:
    """A node of a printed graph.

    Attributes:
        name: its name.
        target: the op in FX spelling; ``getitem`` for a subscript.
        call: what it calls with which constants, the values of other nodes left open.
        inputs: names of the nodes that it reads, in the order of its arguments.
        frame: the innermost frame of its stack, which is all that is printed.
        spec: ``f32[4, 64]``, what it yields; ``None`` where that is no tensor of known size.
    """

    name: str
    target: str
    call: str
    inputs: tuple[str, ...]
    frame: Frame | None = None
    spec: str | None = None


@dataclass(frozen=True, slots=True)
class PrintedGraph:
    """A printed graph: its nodes by name, in order, and what its inputs are."""

    nodes: Mapping[str, PrintedNode]
    inputs: Mapping[str, str | None] = field(default_factory=dict)


def read_graph(text: str) -> PrintedGraph | None:
    """Read what ``GraphModule.print_readable`` wrote.

    Args:
        text: a class with a ``forward``; graphs that it nests are left out.

    Returns:
        The graph; ``None`` where the text is not Python.
    """
    try:
        tree = ast.parse(_UNNAMED.sub("class _(", text))
    except SyntaxError:
        return None
    function = next((f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)), None)
    if function is None:
        return None
    inputs = {a.arg: _spec(a.annotation) for a in function.args.args if a.arg != "self"}
    frames, nodes, known = _Frames(text.splitlines()), dict[str, PrintedNode](), set(inputs)
    for name, value, annotation, line in _assignments(function.body):
        nodes[name] = _node(name, value, _spec(annotation), known, frames.before(line))
        known.add(name)
    return PrintedGraph(nodes, inputs)


def made_of_tangents(graph: PrintedGraph) -> frozenset[str]:
    """Return the nodes that gradients flow into, so that they are none of the forward's."""
    found = {name for name in graph.inputs if name.startswith("tangents_")}
    for node in graph.nodes.values():
        if not found.isdisjoint(node.inputs):
            found.add(node.name)
    return frozenset(found & graph.nodes.keys())


def _assignments(
    body: list[ast.stmt],
) -> Iterator[tuple[str, ast.expr, ast.expr | None, int]]:
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
            yield targets[0].id, value, getattr(statement, "annotation", None), statement.lineno


def _node(
    name: str, value: ast.expr, spec: str | None, known: set[str], frame: Frame | None
) -> PrintedNode:
    inputs: list[str] = []
    call, target = ast.unparse(_Opened(known, inputs).visit(value)), _target(value)
    # Which random seed it takes is an argument of the kernel, not a part of its code.
    call = target if target in _NUMBERED else call
    return PrintedNode(name, target, call, tuple(inputs), frame, spec)


class _Opened(ast.NodeTransformer):
    """Replaces the values of other nodes, and keeps their names in order."""

    def __init__(self, known: set[str], inputs: list[str]) -> None:
        self._known, self._inputs = known, inputs

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id not in self._known:
            return node
        self._inputs.append(node.id)
        return ast.Name("_", node.ctx)


def _target(value: ast.expr) -> str:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).removeprefix("torch.ops.").removeprefix("operator.")
    return "getitem" if isinstance(value, ast.Subscript) else type(value).__name__


def _spec(annotation: ast.expr | None) -> str | None:
    if not isinstance(annotation, ast.Constant) or not isinstance(annotation.value, str):
        return None
    found = _SPEC.match(annotation.value)
    return found[0] if found else None


class _Frames:
    """The frames that comments give for the statements after them."""

    def __init__(self, lines: list[str]) -> None:
        self._lines, self._read, self._frame = lines, 0, None

    _frame: Frame | None

    def before(self, line: int) -> Frame | None:
        """Return the frame in force at a line; lines are asked for in order."""
        for text in self._lines[self._read : line]:
            if (found := _LINE.search(text)) is not None:
                file = shorten(absolute(found["file"]))
                code = found["code"].strip() or None
                self._frame = Frame(file, int(found["line"]), found["function"], code)
            elif _NO_LINE in text:
                self._frame = None
        self._read = line
        return self._frame
