"""The check of a line's node by the node's own op, constants and buffers.

It shares nothing with the observation of who writes a line: it reads what the line computes, and
what the node may need. An op that is not in the tables says nothing, except of its buffers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch.fx

from profiler_ext.records.kernel_lines import KernelLineEvidence
from profiler_ext.records.provenance import is_view_op
from profiler_ext.torch_compat import fx, inductor, kernel_code, schedules

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.USub: "neg",
    ast.Invert: "~",
}
# What any op may need: moving, casting, shaping, and to leave out what a mask excludes.
_NEUTRAL_FUNCTIONS = (
    "load store atomic_add full to broadcast_to where reshape view expand_dims trans permute "
    "promote_to_tensor constexpr arange zeros device_assert assume multiple_of max_contiguous "
    "debug_barrier make_block_ptr advance range join split program_id cast float"
)
_NEUTRAL = frozenset(_NEUTRAL_FUNCTIONS.split())
_ACCESSES = frozenset(("load", "store", "atomic_add"))
# What the lines of an op may compute beside a function of its own name.
_NEEDS = {
    "add": "+ * - |",
    "sub": "- * isnan isinf |",
    "rsub": "- *",
    "mul": "* &",
    "div": "/ div_rn * // div_floor_integer trunc floor %",
    "reciprocal": "/ rcp",
    "neg": "neg -",
    "square": "*",
    "pow": "* / sqrt sqrt_rn rsqrt pow exp2 exp log2",
    "sqrt": "sqrt sqrt_rn",
    "rsqrt": "rsqrt",
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "log": "log",
    "log1p": "log1p",
    "log2": "log2 log *",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "tanh": "tanh",
    "erf": "erf",
    "sigmoid": "sigmoid exp neg + /",
    "relu": "maximum",
    "abs": "abs",
    "sign": "- < >",
    "floor": "floor",
    "ceil": "ceil",
    "round": "nearbyint rint",
    "trunc": "trunc",
    "maximum": "maximum",
    "minimum": "minimum",
    "clamp": "maximum minimum",
    "clamp_min": "maximum",
    "clamp_max": "minimum",
    "where": "where",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "logical_and": "& != ==",
    "logical_or": "| != ==",
    "logical_not": "== ~",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_not": "~ ==",
    "bitwise_xor": "^",
    "sum": "sum + * <",  # the last block of a split reduction ends before its bound
    "mean": "sum + / * <",
    "amax": "max2 maximum max <",
    "amin": "min2 minimum min <",
    "prod": "prod * <",
    "any": "any any_op max2 maximum | max <",
    "convert_element_type": "!=",
    "clone": "",
    "full": "",
    "full_like": "",
    "copy": "",
    "copy_": "",
}
_OPS = {op: frozenset(needed.split()) for op, needed in _NEEDS.items()}
_OF_CONSTANTS = "mul add sub div eq ne lt le gt ge where full"
_EXACT_CONSTANTS = frozenset(_OF_CONSTANTS.split())
_INHERENT = frozenset((0.0, 1.0, -1.0))
_FOLDED = frozenset(("full", "full_like", "iota", "arange", "scalar_tensor", "empty", "lift_fresh"))
_UNCHANGED = frozenset(("getitem", "clone", "copy", "copy_", "convert_element_type"))
# They write into the buffer that holds their first argument.
_WRITERS = (
    "scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ index_put index_put_ "
    "_unsafe_index_put _unsafe_masked_index_put_accumulate index_add index_add_ index_copy"
)
_OVERWRITING = frozenset(_WRITERS.split())
_FILL = re.compile(r"^_?tmp\d+ = tl\.full\(\[[^]]*\], (?P<value>[^,]+), tl\.\w+\)$")
_INDEX = re.compile(r"^(?:[xyz]\d+|r\d_\d+|[xyz]index|r\d_index|rindex|r?ks\d+|ps\d+)$")
_ACCUMULATOR = re.compile(r"^_tmp\d+ = tl\.full\(|^_tmp\d+ = |^tmp\d+_(?:mean|m2|weight)")


class Confirmation:
    """Checks the lines of one kernel."""

    def __init__(self, kernel: Any) -> None:
        self._graph = inductor.current_graph()
        self._fx_graph = inductor.current_fx_graph()
        self._buffers = kernel_code.buffers_of_arguments(kernel)
        self._near: dict[torch.fx.Node, frozenset[torch.fx.Node]] = {}

    def contradiction(self, line: str, nodes: Iterable[torch.fx.Node]) -> str | None:
        """Return why a line cannot be of its nodes, if so."""
        found = _Computed(line)
        own = tuple(nodes)
        return self._wrong_buffer(found, own) or _wrong_op(found, own) or self._constant(line, own)

    def evidence(self, line: str, nodes: Iterable[torch.fx.Node]) -> KernelLineEvidence:
        """Return whether the nodes' ops confirm a line that they do not contradict."""
        found = _Computed(line)
        accessed = found.arguments & set(self._buffers) if self._is_own(nodes) else set()
        tabled = all(_op(node) in _OPS for node in nodes)
        number = _filled(line)
        is_own_number = number is not None and any(number in set(_numbers(n)) for n in nodes)
        if accessed or is_own_number or (tabled and found.functions):
            return KernelLineEvidence.CONFIRMED
        return KernelLineEvidence.EMITTED

    def _is_own(self, nodes: Iterable[torch.fx.Node]) -> bool:
        """Tell whether nodes are of the graph itself, not of one that a template inlines.

        Such a graph reads the buffers around it by inputs of its own.
        """
        return all(node.graph is self._fx_graph for node in nodes)

    def _wrong_buffer(self, found: _Computed, nodes: tuple[torch.fx.Node, ...]) -> str | None:
        if not self._is_own(nodes):
            return None
        for argument in sorted(found.arguments & set(self._buffers)):
            buffers = self._buffers[argument]
            held = {node for name in buffers for node in self._held(name)}
            if held and not any(held & self._around(node) for node in nodes):
                names = ", ".join(node.name for node in nodes)
                return f"{argument} is {' or '.join(buffers)}, which {names} does not access"
        return None

    def _held(self, buffer: str) -> set[torch.fx.Node]:
        """The node whose value a buffer holds; all that Inductor lists, where that is open."""
        exact = schedules.buffer_value(self._graph, buffer)
        if exact is None:
            return set(kernel_code.buffer_nodes(self._graph, buffer))
        # What is copied into an input in the end is computed in its memory before.
        copies = [user for user in exact.users if fx.is_input_copy(user)]
        return {
            exact,
            *(each.args[1] for each in copies if isinstance(each.args[1], torch.fx.Node)),
        }

    def _around(self, node: torch.fx.Node) -> frozenset[torch.fx.Node]:
        """A node, what it reads through views, and what takes its value on."""
        if node not in self._near:
            todo, seen = [node], {node, *node.users}
            while todo:
                read = [each for each in todo.pop().all_input_nodes if each not in seen]
                seen.update(read)
                seen.update(below for each in read for below in _overwritten(each))
                todo.extend(each for each in read if _is_transparent(each))
            self._near[node] = frozenset(seen)
        return self._near[node]

    def _constant(self, line: str, nodes: tuple[torch.fx.Node, ...]) -> str | None:
        value = _filled(line)
        if value is None or value in _INHERENT:
            return None
        for node in nodes:
            is_open = _op(node) not in _EXACT_CONSTANTS
            is_open = is_open or any(_op(each) in _FOLDED for each in self._around(node))
            # A size is a number once it is known.
            is_open = is_open or not all(fx.tensors(each.meta) for each in node.all_input_nodes)
            if is_open or value in set(_numbers(node)):
                return None
        return f"{value} is no number of {', '.join(node.name for node in nodes)}"


def _filled(line: str) -> float | None:
    """The number that a line makes a value of, but for the accumulator of a reduction."""
    fill = _FILL.match(line)
    if fill is None or _ACCUMULATOR.match(line):
        return None
    try:
        return float(fill["value"])
    except ValueError:
        return None


class _Computed:
    """What a line computes: functions and operators of values, and the arguments it accesses."""

    def __init__(self, line: str) -> None:
        self.functions: set[str] = set()
        self.arguments: set[str] = set()
        try:
            tree = ast.parse(line)
        except SyntaxError:  # a head of a block
            return
        for statement in tree.body:
            value = getattr(statement, "value", None)
            if isinstance(value, ast.AST):
                self._visit(value)

    def _visit(self, node: ast.AST) -> None:
        is_number = isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
        if is_number or _is_index(node):
            return
        children = ast.iter_child_nodes(node)
        if isinstance(node, ast.Call):
            children = iter(self._call(node))
        elif isinstance(node, ast.BinOp | ast.UnaryOp):
            self._add(node.op)
        elif isinstance(node, ast.Compare):
            for operator in node.ops:
                self._add(operator)
        for child in children:
            if not isinstance(child, ast.Subscript) or isinstance(child.value, ast.Call):
                self._visit(child)

    def _call(self, call: ast.Call) -> list[ast.AST]:
        """Note what a call computes, and return which of its parts compute values."""
        name = _called(call)
        if name in _ACCESSES:
            self.arguments |= {each.id for each in ast.walk(call) if isinstance(each, ast.Name)}
            return [] if name == "load" else list(call.args[1:2])
        if name not in _NEUTRAL:
            self.functions.add(name)
        if name == "where" and _is_mask(call.args[0]):
            return list(call.args[1:])
        return list(ast.iter_child_nodes(call))

    def _add(self, operator: ast.AST) -> None:
        if (spelled := _OPERATORS.get(type(operator))) is not None:
            self.functions.add(spelled)


def _is_index(node: ast.AST) -> bool:
    """Tell whether an expression is of indices alone."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return all(_INDEX.match(name) for name in names - {"tl"}) and bool(names - {"tl"})


def _is_mask(condition: ast.AST) -> bool:
    names = {each.id for each in ast.walk(condition) if isinstance(each, ast.Name)}
    return any(name.endswith("mask") for name in names)


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _op(node: torch.fx.Node) -> str:
    name = fx.target_name(node.target)
    return name.split(".")[1] if name.startswith(("aten.", "prims.")) else name


def _is_transparent(node: torch.fx.Node) -> bool:
    """Tell whether a node computes nothing of its own where its value is read."""
    name = fx.target_name(node.target)
    return is_view_op(name) or _op(node) in _UNCHANGED


def _overwritten(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The values in whose memory an op may put its own."""
    op = _op(node)
    if op.startswith("_foreach_"):  # into that of each element of its first list
        return list(node.all_input_nodes)
    return node.all_input_nodes[:1] if op in _OVERWRITING or op.endswith("_") else []


def _wrong_op(found: _Computed, nodes: tuple[torch.fx.Node, ...]) -> str | None:
    for node in nodes:
        op = _op(node)
        needed = _OPS.get(op)
        if needed is None:
            return None
        extra = found.functions - needed - {op, op.rstrip("_")}
        if not extra:
            return None
    names = ", ".join(node.name for node in nodes)
    return f"{names} does not compute {' '.join(sorted(found.functions))}"


def _numbers(node: torch.fx.Node) -> Iterator[float]:
    todo: list[Any] = [*node.args, *node.kwargs.values()]
    while todo:
        value = todo.pop()
        if isinstance(value, list | tuple):
            todo.extend(value)
        elif isinstance(value, int | float):
            yield float(value)
            yield -float(value)
            if value:
                yield 1.0 / value
