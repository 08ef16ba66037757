"""The statements of a generated wrapper that allocate, and the buffers that they name."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

_EMPTY = "empty_strided"
_BENCHMARKS = ("get_args", "benchmark_compiled_module")
ITEM_BYTES = {
    "float64": 8, "int64": 8, "complex64": 8, "uint64": 8, "complex128": 16,
    "float32": 4, "int32": 4, "uint32": 4,
    "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2,
    "uint8": 1, "int8": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a wrapper that allocates, or calls something that may."""

    function: str
    first_line: int
    last_line: int
    allocates: bool  # it is an ``empty_strided``
    variables: tuple[str, ...]  # what it assigns, or else passes
    size_bytes: int | None = None  # of an ``empty_strided``, unless its sizes are symbols

    @property
    def is_workspace(self) -> bool:
        """Whether it allocates scratch memory of a kernel."""
        return self.allocates and self.variables[0].startswith("workspace")


@dataclass(frozen=True, slots=True)
class Alias:
    """A buffer that is in the memory of another one."""

    name: str
    of: str
    is_reuse: bool  # memory planning gave it the memory, as the other is not read any more


class Wrapper:
    """The statements of a generated module."""

    def __init__(self, text: str) -> None:
        try:
            tree = ast.parse(text)
        except SyntaxError:
            tree = ast.Module([], [])
        functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
        self.statements = [s for each in functions for s in _statements(each.name, each.body)]
        call = next((each for each in functions if each.name == "call"), None)
        # The names that it takes, and what it returns: a name, or nothing for a constant.
        # What is used of arguments and buffers, apart from checks of their sizes
        self.used = frozenset(name for each in functions for name in _used(each))
        self.aliases = [*_aliases(functions, text.splitlines())]
        self.arguments = [] if call is None else _arguments(call)
        self.returned = [] if call is None else _returned(call)

    @cached_property
    def _by_line(self) -> dict[int, Statement]:
        lines: dict[int, Statement] = {}
        for each in self.statements:
            for line in range(each.first_line, each.last_line + 1):
                lines.setdefault(line, each)
        return lines

    def at_line(self, line: int) -> Statement | None:
        """Return the statement at a line."""
        return self._by_line.get(line)

    def buffers(self, statement: Statement) -> Iterator[tuple[str, ...]]:
        """Yield the buffers of a statement, then those of the statements that use its first.

        Of memory that parts are written into, its views are used.
        """
        yield statement.variables
        if statement.allocates:
            at = self.statements.index(statement)
            names = {statement.variables[0], *self.parts(statement.variables[0])}
            for each in self.statements[at + 1 :]:
                is_near = each.function == statement.function and not each.allocates
                if is_near and not names.isdisjoint(each.variables):
                    yield each.variables

    def parts(self, buffer: str) -> list[str]:
        """Return the views of a buffer that have names of their own."""
        names = [buffer]
        for name in names:
            names += [each for each in self._views.get(name, ()) if each not in names]
        return names[1:]

    @cached_property
    def _views(self) -> dict[str, list[str]]:
        views: dict[str, list[str]] = {}
        for each in self.aliases:
            if not each.is_reuse and each.name != each.of:
                views.setdefault(each.of, []).append(each.name)
        return views

    def in_order(self, sizes_bytes: Sequence[int]) -> list[Statement] | None:
        """Return the allocating statements, if they are these in order, each of these sizes."""
        if any(each.function.startswith("partition_") for each in self.statements):
            return None
        own = [each for each in self.statements if each.allocates and each.function == "call"]
        pairs = zip(own, sizes_bytes, strict=False)
        is_same = all(each.size_bytes in (size, None) for each, size in pairs)
        return own if is_same and len(own) == len(sizes_bytes) else None


def saved_values(
    forward: Wrapper, backward: Wrapper, inputs: Container[str]
) -> dict[str, tuple[str, ...]]:
    """Return the nodes in each buffer that a forward saves, by the names that its backward has.

    A forward returns last what it saves, in the order in which the backward takes it, before the
    gradients. Nothing where the inputs that both name do not agree in that.

    Args:
        forward: the wrapper of the forward graph.
        backward: that of its backward.
        inputs: the names of the forward's inputs.
    """
    taken = [each for each in backward.arguments if not each.startswith("tangents_")]
    if not taken or len(taken) > len(forward.returned):
        return {}
    pairs = [*zip(forward.returned[-len(taken) :], taken, strict=True)]
    shared = [pair for pair in pairs if pair[0] in inputs or pair[1] in inputs]
    if not shared or any(ours != theirs for ours, theirs in shared):
        return {}
    buffers: dict[str, dict[str, None]] = {}
    for buffer, node in pairs:
        if buffer and buffer not in inputs:
            buffers.setdefault(buffer, {})[node] = None
    return {buffer: tuple(nodes) for buffer, nodes in buffers.items()}


def _arguments(call: ast.FunctionDef) -> list[str]:
    for each in call.body:
        is_taken = isinstance(each, ast.Assign) and isinstance(each.value, ast.Name)
        if isinstance(each, ast.Assign) and is_taken and isinstance(each.targets[0], ast.Tuple):
            return [each.id for each in each.targets[0].elts if isinstance(each, ast.Name)]
    return []


def _returned(call: ast.FunctionDef) -> list[str]:
    last = call.body[-1] if call.body else None
    inner = [*ast.walk(last)] if last is not None else []
    values = next((each.value for each in inner if isinstance(each, ast.Return)), None)
    if not isinstance(values, ast.Tuple):
        return []
    return [_first_name(each) for each in values.elts]


def _first_name(value: ast.expr) -> str:
    """Return the buffer of ``buf3`` or ``reinterpret_tensor(buf3, ...)``."""
    if isinstance(value, ast.Call) and value.args:
        value = value.args[0]
    return value.id if isinstance(value, ast.Name) else ""


def _used(function: ast.FunctionDef) -> Iterator[str]:
    """Yield the names that a wrapper's function uses; not those of the module's own benchmark."""
    todo: list[ast.AST] = [] if function.name.startswith(_BENCHMARKS) else [*function.body]
    while todo:
        each = todo.pop()
        if isinstance(each, ast.Call) and ast.unparse(each.func).startswith("assert_"):
            continue
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
            yield each.id
        todo += ast.iter_child_nodes(each)


def _aliases(functions: Sequence[ast.FunctionDef], lines: Sequence[str]) -> Iterator[Alias]:
    """Yield those of ``buf3 = buf1; del buf1  # reuse``, and of views of buffers."""
    assigned = [e for f in functions for e in ast.walk(f) if isinstance(e, ast.Assign)]
    for each in sorted(assigned, key=lambda each: each.lineno):
        called = each.value.func if isinstance(each.value, ast.Call) else None
        is_view = isinstance(called, ast.Name) and called.id == "reinterpret_tensor"
        name, of = each.targets[0], _first_name(each.value)
        if isinstance(name, ast.Name) and of and (is_view or called is None):
            yield Alias(name.id, of, lines[each.lineno - 1].endswith("# reuse"))


def _statements(function: str, body: Sequence[ast.stmt]) -> Iterator[Statement]:
    for each in body:
        if isinstance(each, ast.With | ast.If | ast.While | ast.For):
            yield from _statements(function, each.body)
            yield from _statements(function, getattr(each, "orelse", []))
        elif (
            isinstance(value := getattr(each, "value", None), ast.Call)
            and (statement := _statement(function, each, value)).variables
        ):
            yield statement


def _statement(function: str, statement: ast.stmt, call: ast.Call) -> Statement:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    assigned = [each.id for each in targets if isinstance(each, ast.Name)]
    called = call.func.id if isinstance(call.func, ast.Name) else ""
    allocates = bool(assigned) and called.startswith(_EMPTY)
    arguments = [*call.args, *(each.value for each in call.keywords)]
    inner = (each for argument in arguments for each in ast.walk(argument))
    passed = [each.id for each in inner if isinstance(each, ast.Name)]
    return Statement(
        function,
        statement.lineno,
        statement.end_lineno or statement.lineno,
        allocates,
        tuple(assigned or passed),
        _bytes(call) if allocates else None,
    )


def _bytes(call: ast.Call) -> int | None:
    """Return the bytes of ``empty_strided_cuda((4, 8), (8, 1), torch.float32)``."""
    if len(call.args) < 3 or not isinstance(call.args[2], ast.Attribute):
        return None
    try:
        size, stride = (ast.literal_eval(each) for each in call.args[:2])
        if 0 in size:
            return 0
        items = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        return int(items) * ITEM_BYTES[call.args[2].attr]
    except (ValueError, TypeError, KeyError):
        return None
