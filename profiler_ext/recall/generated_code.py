"""The provenance in a cached artifact's generated code, for a graph compiled without capture."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any

from profiler_ext import source_paths, store
from profiler_ext.recall.dynamo_graph import DynamoGraph, Source
from profiler_ext.recall.lines import from_record, known_by, with_lineage
from profiler_ext.recall.wrapper_calls import WrapperCall, generated_kind, spelled_op, wrapper_calls
from profiler_ext.records.evidence import LineEvidence, Mechanism
from profiler_ext.records.lineage import Frame, Lineage
from profiler_ext.records.provenance import CallSite, FxNode, Provenance, is_view_op
from profiler_ext.records.vocabulary import SiteKind

_LINE = re.compile(
    r"#.*?\bFile: (?P<file>.+?):(?P<line>\d+) in (?P<function>.+?), code: (?P<code>.*)"
)
_UNNAMED = re.compile(r"class <\w+>\(")
_NO_LINE = "# No stacktrace found"


@dataclass(frozen=True, slots=True)
class PrintedNode:
    """A node of a printed graph."""

    name: str
    target: str  # in FX spelling; ``getitem`` for a subscript
    call: str  # the expression of its value
    inputs: tuple[str, ...]  # the nodes that it reads, in the order of its arguments
    frame: Frame | None = None  # the innermost of its stack: no more is printed


@dataclass(frozen=True, slots=True)
class PrintedGraph:
    """A printed graph: its nodes by name, in order, and the names of its inputs."""

    nodes: Mapping[str, PrintedNode]
    inputs: frozenset[str] = frozenset()


def read_graph(text: str) -> PrintedGraph | None:
    """Parse the output of ``GraphModule.print_readable``, without nested graphs."""
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
    """The names in an expression, in textual order."""
    if isinstance(value, ast.Name):
        yield value.id
    for child in ast.iter_child_nodes(value):
        yield from _names(child)


def _target(value: ast.expr) -> str:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).removeprefix("torch.ops.").removeprefix("operator.")
    return "getitem" if isinstance(value, ast.Subscript) else type(value).__name__


class _Frames:
    def __init__(self, lines: list[str]) -> None:
        self._lines, self._read, self._frame = lines, 0, None

    _frame: Frame | None

    def before(self, line: int) -> Frame | None:
        """Return the frame in effect at a line; lines are asked for in order."""
        for text in self._lines[self._read : line]:
            if (match := _LINE.search(text)) is not None:
                file = source_paths.shorten(source_paths.absolute(match["file"]))
                code = match["code"].strip() or None
                self._frame = Frame(file, int(match["line"]), match["function"], code)
            elif _NO_LINE in text:
                self._frame = None
        self._read = line
        return self._frame


_CALLED_AS = {"aten.bias_addmm": "aten.addmm"}
_CallInputs = Mapping[int, Set[str]]
"""The graph inputs that each call gets, by its position, without mutated ones."""


def library_nodes(
    graph: PrintedGraph, calls: Sequence[WrapperCall], *, is_backward: bool
) -> dict[int, str]:
    """Return the nodes of those library calls that match only one node.

    If an op has as many calls as nodes, and each node depends on the one before, they match in
    order. Else a call matches one of the nodes that read its graph inputs, by the same rule.
    """
    node_of = dict(_pairs(graph, calls))
    times = Counter(node_of.values())
    sure = {name for name, count in times.items() if count == 1}
    if is_backward:  # only what depends on gradients: the rest may be recomputed forward
        tangents = {name for name in graph.inputs if name.startswith("tangents_")}
        made = sure & _made_of(tangents, graph)
        sure = {name for name in made if graph.nodes[name].target != "aten.add.Tensor"}
    return {at: name for at, name in node_of.items() if name in sure}


def _pairs(graph: PrintedGraph, calls: Sequence[WrapperCall]) -> Iterator[tuple[int, str]]:
    mutated: set[str] = set()
    for node in graph.nodes.values():
        if any(part.endswith(("_", "_mutation")) for part in node.target.split(".")):
            mutated.update(node.inputs)
    fixed = graph.inputs - mutated
    call_inputs = {at: fixed & set(filter(None, call.arguments)) for at, call in enumerate(calls)}
    for op, positions in _by_op(calls).items():
        names = tuple(n.name for n in graph.nodes.values() if f"{n.target}.".startswith(f"{op}."))
        is_complete = not _has_templates(calls) and _are_one(positions, names, call_inputs, graph)
        by_inputs = _by_inputs(positions, names, call_inputs, graph)
        for own, their in ({names: positions} if is_complete else by_inputs).items():
            if _are_one(their, own, call_inputs, graph):
                yield from zip(their, own, strict=True)


def _by_op(calls: Sequence[WrapperCall]) -> Mapping[str, list[int]]:
    """The positions of library calls, by the op of a matching node."""
    calls_by_op = defaultdict[str, list[int]](list)
    for at, call in enumerate(calls):
        if not (call.generated or call.partial):
            op = call.callee.removeprefix("torch.ops.").replace("extern_kernels.", "aten.")
            calls_by_op[_CALLED_AS.get(op, op)].append(at)
    return calls_by_op


def _by_inputs(
    positions: Iterable[int], names: Sequence[str], call_inputs: _CallInputs, graph: PrintedGraph
) -> Mapping[tuple[str, ...], list[int]]:
    """The positions of calls with graph inputs, by the nodes that read all of those."""
    calls_by_inputs = defaultdict[tuple[str, ...], list[int]](list)
    for at in positions:
        if call_inputs[at]:
            calls_by_inputs[tuple(n for n in names if _reads(n, call_inputs[at], graph))].append(at)
    return calls_by_inputs


def _are_one(
    positions: Sequence[int], names: Sequence[str], call_inputs: _CallInputs, graph: PrintedGraph
) -> bool:
    """Tell whether calls match nodes in order: each node depends on the one before."""
    if len(positions) != len(names):
        return False
    fits = all(_reads(n, call_inputs[at], graph) for at, n in zip(positions, names, strict=True))
    return fits and all(later in _made_of({earlier}, graph) for earlier, later in pairwise(names))


def _reads(name: str, values: Set[str], graph: PrintedGraph) -> bool:
    return values <= _read(graph.nodes[name].inputs, graph)


def _read(names: Iterable[str], graph: PrintedGraph) -> Set[str]:
    """Some values, and those that they are views or parts of."""
    values = set(names)
    for name in names:
        node = graph.nodes.get(name)
        if node is not None and (is_view_op(node.target) or node.target == "getitem"):
            values |= _read(node.inputs[:1], graph)
    return values


def _has_templates(calls: Sequence[WrapperCall]) -> bool:
    """Tell whether a template may replace a node, so that calls and nodes cannot be counted."""
    kinds = (generated_kind(call.callee) for call in calls if call.generated)
    return any(kind is SiteKind.TRITON_TEMPLATE for kind in kinds)


def _made_of(values: Set[str], graph: PrintedGraph) -> Set[str]:
    """The nodes that depend on some values."""
    made = set(values)
    for node in graph.nodes.values():
        if not made.isdisjoint(node.inputs):
            made.add(node.name)
    return made & graph.nodes.keys()


@dataclass(frozen=True, slots=True)
class GeneratedCode:
    """The text of an artifact."""

    source: str  # the generated module
    printed: str  # the post-grad graph as torch printed it
    is_backward: bool
    is_inference: bool
    torch_version: str  # of this process: cache entries are per version


def graph_from_code(
    code: GeneratedCode, dynamo: DynamoGraph | None
) -> tuple[Provenance | None, tuple[FxNode, ...]]:
    """Return the provenance in an artifact's text, and its nodes with their lines.

    The text has the call sites in order, and the node of a library call if it is unique; it does
    not say what a generated kernel computes, the links, or the modules of a line. The printed line
    of a node (mechanism ``PRINTED``) is no rule in ``capture/lineage/order.py``: there was no
    stage. No record is returned if the text is not understood, or has nested graphs.
    """
    graph, calls = read_graph(code.printed), wrapper_calls(code.source)
    if graph is None or not calls or any(calls[name] for name in calls if name != "call"):
        return None, ()
    lines = lines_from_code(map(_node, graph.nodes.values()), dynamo)
    stale = {node.name for node in lines if node.lineage.evidence is LineEvidence.STALE}
    node_of: Mapping[int, str] = {}
    # The phase or line of a node may be another's: a gradient taken inside the graph has the line
    # of the call for it, and compiled autograd's copies have none.
    if dynamo is not None and not dynamo.takes_gradient and not dynamo.copy_sources:
        node_of = library_nodes(graph, calls["call"], is_backward=code.is_backward)
    node_of = {at: name for at, name in node_of.items() if name not in stale}
    record = Provenance(
        digest="",
        torch_version=code.torch_version,
        is_backward=code.is_backward,
        is_inference=code.is_inference,
        joint=None,
        dynamo_digest=None,
        nodes=tuple(map(_node, graph.nodes.values())),
        call_sites=tuple(_site(n, c, node_of.get(n)) for n, c in enumerate(calls["call"])),
        is_inferred=True,
    )
    return store.with_digest(record), lines


def lines_from_code(nodes: Iterable[FxNode], dynamo: DynamoGraph | None) -> tuple[FxNode, ...]:
    """Return inferred nodes with this process's lines, if its source has the same text."""
    # Another function may have the same graph, so a line counts only if this process's Dynamo graph
    # has a frame of the same function and text.
    if dynamo is None:
        return from_record(nodes, LineEvidence.CODE_COMMENTS)
    return tuple(_with_code_line(node, dynamo) for node in nodes)


def _node(node: PrintedNode) -> FxNode:
    lineage = Lineage(stack=(node.frame,) if node.frame else ())
    return FxNode(
        name=node.name,
        target=node.target,
        lineage=lineage.by(Mechanism.PRINTED),
        inputs=tuple(dict.fromkeys(node.inputs)),
        entry_name=node.name,
    )


def _site(number: int, call: WrapperCall, node: str | None) -> CallSite:
    kernel, op = call.callee, None
    if call.generated:
        is_own = kernel.startswith(("triton_", "cpp_"))
        kind = generated_kind(kernel) if is_own else SiteKind.USER_TRITON
    else:
        kind, op = SiteKind.EXTERN, f"aten::{kernel}" if call.partial else spelled_op(kernel)
    nodes = () if node is None else (node,)
    return CallSite(number, str(number), kind, kernel, op, nodes, (1,) * len(nodes))


def _with_code_line(node: FxNode, dynamo: DynamoGraph) -> FxNode:
    stack = node.lineage.stack
    places = _places_of(stack[-1], dynamo) if stack else []
    if len({place.stack[-1] for place in places}) != 1:
        return known_by(LineEvidence.STALE, node)
    modules = {place.modules for place in places}
    return with_lineage(
        node,
        stack=_common_end([place.stack for place in places]),
        modules=modules.pop() if len(modules) == 1 else (),
        evidence=LineEvidence.CODE_COMMENTS,
    )


def _places_of(recorded_frame: Frame, dynamo: DynamoGraph) -> list[Source]:
    """The places with that very frame, else with its function and text elsewhere."""
    ending = [place for place in dynamo.places if place.stack]
    exact = [place for place in ending if place.stack[-1] == recorded_frame]
    text = (recorded_frame.function, recorded_frame.code)
    ends = ((place, place.stack[-1]) for place in ending if recorded_frame.code)
    moved = [place for place, frame in ends if (frame.function, frame.code) == text]
    return [each for place in exact or moved for each in dynamo.runs.places_of(place)]


def _common_end(stacks: list[tuple[Frame, ...]]) -> tuple[Frame, ...]:
    inwards = zip(*(reversed(stack) for stack in stacks), strict=False)
    same = takewhile(lambda frames: len(set(frames)) == 1, inwards)
    return tuple(reversed([frames[0] for frames in same]))
