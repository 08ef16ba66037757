"""The launches in the generated wrapper's text, to check the call sites against."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from profiler_ext.records.vocabulary import SiteKind

_PARTIAL = ("sum", "amax", "amin", "prod", "any")
_COMMENT = re.compile(r"\s*# .* Source Nodes: \[.*?\], Original ATen: \[(.*?)\]")
_CPP_ENTRY = re.compile(
    r"^void (?P<entry>inductor_entry_impl|AOTInductorModel::run_impl)\(.*?^\} // (?P=entry)$",
    re.M | re.S,
)
_CPP_CALL = re.compile(
    r"^\s*(?:call_)?(?P<kernel>(?<=call_)\w+|cpp_fused_\w+)\("
    r"|\b(?P<library>aoti_torch_(?:cpu|cuda|xpu|mps)_\w+)\(",
    re.M,
)
_EXTERN = ("extern_kernels", "aten", "torch.ops")


@dataclass(frozen=True, slots=True)
class WrapperCall:
    """One launch in the wrapper's text."""

    callee: str
    """``triton_poi_fused_add_0``, ``cpp_fused_add_0``, ``extern_kernels.mm``, or the reduction
    (``sum``) of a workspace's last stage."""
    buffer: str | None  # that is assigned
    generated: bool  # by Inductor
    partial: bool = False  # it finishes partial values in a workspace
    line: int = field(default=0, compare=False)
    ops: frozenset[str] | None = None  # ATen, in the comment above it
    arguments: tuple[str | None, ...] = field(default=(), compare=False)  # variables
    out: str | None = field(default=None, compare=False)  # the variable that a library writes


def wrapper_calls(source: str) -> dict[str, tuple[WrapperCall, ...]]:
    """Return the launches of each function in a generated module, in program order.

    The text is parsed, never run. Partitions are inlined into ``call``. For the C++ wrapper, the
    body of its entry is read line by line. Empty if there is neither.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:  # AOTInductor's is C++ as a whole
        return _cpp_calls(source)
    functions = {f.name: f for f in _statements(tree) if isinstance(f, ast.FunctionDef)}
    if "call" not in functions:
        return _cpp_calls(source)
    partitions = {name: f for name, f in functions.items() if name.startswith("partition_")}
    graphs = {f.name: f for f in tree.body if isinstance(f, ast.FunctionDef)}
    graphs = {name: f for name, f in graphs.items() if name not in partitions}
    graphs["call"] = functions["call"]
    calls_by_graph = {name: list(_calls(f.body, partitions)) for name, f in graphs.items()}
    launches = {call.line for calls in calls_by_graph.values() for call in calls}
    comments = _commented(source, launches)
    return {
        name: tuple(replace(call, ops=comments.get(call.line)) for call in calls)
        for name, calls in calls_by_graph.items()
    }


_CALL = re.compile(r"^ *def call\(.*?\):$(?P<body>.*?)^(?=\S)", re.M | re.S)
_GIVEN = re.compile(r"^ +(?P<names>[\w, ]+?),? = args$", re.M)
_RETURNED = re.compile(r"^ +return (?P<values>\(.*\))$", re.M)


def boundary_names(source: str) -> tuple[tuple[str, ...], tuple[str | None, ...]]:
    """Return the variables of the inputs and of the outputs of a generated module, in order."""
    found = _CALL.search(source)
    body = found["body"] if found else ""
    given, returned = _GIVEN.search(body), _RETURNED.findall(body)
    if given is None or not returned:
        return (), ()
    values = ast.parse(returned[-1], mode="eval").body
    outputs = values.elts if isinstance(values, ast.Tuple) else [values]
    return tuple(given["names"].split(", ")), tuple(map(variable, outputs))


_BODIES = (ast.stmt, ast.excepthandler, ast.match_case)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Walk as ``ast.walk`` does, but into no expression, which define no functions."""
    todo: deque[ast.AST] = deque(tree.body)
    while todo:
        statement = todo.popleft()
        yield statement
        if not isinstance(statement, ast.Expr | ast.Assign | ast.Delete):
            children = ast.iter_child_nodes(statement)
            todo.extend(child for child in children if isinstance(child, _BODIES))


def _commented(source: str, launches: set[int]) -> dict[int, frozenset[str]]:
    """The ops in the comment above each launch, by the launch's line."""
    ops_by_line, ops = dict[int, frozenset[str]](), None
    for number, line in enumerate(source.split("\n"), start=1):
        if line[:1].strip():  # a definition, whose comment belongs to no launch
            ops = None
        elif (comment := _COMMENT.match(line)) is not None:
            ops = frozenset(name for name in comment[1].split(", ") if name)
        elif number in launches and ops is not None:
            ops_by_line[number], ops = ops, None
    return ops_by_line


def _cpp_calls(source: str) -> dict[str, tuple[WrapperCall, ...]]:
    """Return the launches of the C++ wrapper (``torch/_inductor/codegen/cpp_wrapper_*.py``)."""
    body = _CPP_ENTRY.search(source)
    if body is None:
        return {}
    matches = _CPP_CALL.finditer(body[0])
    calls = (
        WrapperCall(
            match["kernel"] or match["library"], None, generated=match["kernel"] is not None
        )
        for match in matches
    )
    return {"call": tuple(calls)}


def _calls(body: list[ast.stmt], partitions: dict[str, ast.FunctionDef]) -> Iterator[WrapperCall]:
    for statement in body:
        if isinstance(statement, ast.With | ast.If | ast.While):
            yield from _calls(statement.body, partitions)
            yield from _calls(getattr(statement, "orelse", []), partitions)
        elif isinstance(value := getattr(statement, "value", None), ast.Call):
            partition = _partition(value)
            if partition in partitions:
                yield from _calls(partitions[partition].body, partitions)
            elif (call := _launch(value, _assigned(statement))) is not None:
                yield replace(call, line=statement.lineno)


def _launch(call: ast.Call, buffer: str | None) -> WrapperCall | None:
    name = _dotted(call.func)
    generated = name.endswith(".run") or name.startswith("cpp_")
    if not generated and not name.startswith(_EXTERN):
        return _partial(call, buffer)
    return WrapperCall(
        name.removesuffix(".run"),
        buffer,
        generated,
        arguments=tuple(variable(argument) for argument in call.args),
        out=next((variable(k.value) for k in call.keywords if k.arg == "out"), None),
    )


def variable(value: ast.expr) -> str | None:
    """Return the variable of an expression: buf1 for ``reinterpret_tensor(buf1, ...)``."""
    if isinstance(value, ast.Name):
        return value.id
    if isinstance(value, ast.Call):
        return variable(value.args[0] if value.args else value.func)
    return variable(value.value) if isinstance(value, ast.Attribute | ast.Subscript) else None


def _partial(call: ast.Call, buffer: str | None) -> WrapperCall | None:
    """``buf7 = workspace_0[...].view(4, 64).sum(dim=0)``, with views and casts after it."""
    node: ast.expr = call
    operation = None
    while True:
        if isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Attribute):
            operation = node.attr if node.attr in _PARTIAL else operation
            node = node.value
        elif isinstance(node, ast.Subscript):
            node = node.value
        else:
            break
    workspace = isinstance(node, ast.Name) and node.id.startswith("workspace")
    if not workspace or operation is None:
        return None
    return WrapperCall(operation, buffer, generated=False, partial=True)


def _partition(call: ast.Call) -> str:
    """``self.partitions[0](args)`` calls ``partition_0``."""
    function = call.func
    if not isinstance(function, ast.Subscript):
        return ""
    if not _dotted(function.value).endswith("partitions"):
        return ""
    index = function.slice
    return f"partition_{index.value!r}" if isinstance(index, ast.Constant) else ""


def _assigned(statement: ast.stmt) -> str | None:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return targets[0].id if targets and isinstance(targets[0], ast.Name) else None


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def generated_kind(kernel: str) -> SiteKind:
    """Return the kind of a generated kernel, by its name."""
    if kernel.startswith("cpp"):
        return SiteKind.CPP
    return SiteKind.TRITON_TEMPLATE if kernel.startswith("triton_tem") else SiteKind.TRITON


def spelled_op(name: str) -> str | None:
    """Return ``extern_kernels.mm`` or ``aten.sort.default`` in the profiler's spelling."""
    parts = name.removeprefix("torch.ops.").split(".")
    if parts[0] == "extern_kernels":
        return f"aten::{parts[-1]}"
    if parts[0] == "higher_order":
        return None
    return f"{parts[0]}::{parts[1]}" if len(parts) >= 2 else None
