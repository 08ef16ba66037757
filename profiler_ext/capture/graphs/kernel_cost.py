"""The cost model: the share of a fused kernel's time that each of its nodes has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set

import torch
import torch.fx

from profiler_ext.records.provenance import is_view_op
from profiler_ext.torch_compat import fx, ops
from profiler_ext.torch_compat.names import fx_names

# A node costs the bytes that its own loads and stores move, and its arithmetic: moving a byte
# weighs as much as this many operations. Views are free: their reader pays. So is a constant that
# the kernel does not store, as equal constants of several layers are one node.
OPERATIONS_PER_BYTE = 16

# Instructions for each float32 element, as Triton compiles them for sm_90, without the branches for
# arguments that are rare; verification/inside/assembling.py counts them. On an H100 ten erf of 16.8
# million elements took 168.5 us: 1.00 ps each, in which it issues 30 to 33 instructions for
# elements (132 multiprocessors of 128 lanes at 1.76 to 1.98 GHz).
INSTRUCTIONS = {
    "exp": 9,
    "expm1": 25,
    "log": 26,
    "log1p": 25,
    "erf": 29,
    "sin": 27,
    "cos": 29,
    "tanh": 13,
    "sigmoid": 11,
    "pow": 83,
    "sqrt": 10,
    "div": 8,
    "reciprocal": 7,
    "inductor_random": 50,
}


def weights(
    nodes: Sequence[torch.fx.Node],
    inlined: Sequence[torch.fx.Node] = (),
    stored: Set[torch.fx.Node] | None = None,
    counted: Mapping[torch.fx.Node, int] | None = None,
) -> tuple[int, ...]:
    """Return the weight of each node of one kernel; all 1 if nothing is known."""
    # ``inlined`` runs for each score of an attention.
    inside, known = set(nodes), counted_operations(nodes) if counted is None else counted
    scores = max((_scores(node) for node in nodes), default=0)
    leaving = read_outside(inside) if stored is None else stored
    times = _times_computed(nodes, leaving)
    weights_of_nodes = tuple(
        0
        if _is_rematerialized(node, stored) or is_view(node)
        else OPERATIONS_PER_BYTE * _bytes_of(node, inside, leaving)
        + _instructions(node) * known[node] * times[node]
        + _elements(node) * (times[node] - 1) * _loads(node, inside)
        for node in nodes
    )
    weights_of_nodes += tuple(0 if is_view(node) else scores for node in inlined)
    return weights_of_nodes if any(weights_of_nodes) else (1,) * len(weights_of_nodes)


def moved_bytes(nodes: Sequence[torch.fx.Node]) -> int:
    """Return the estimated bytes that a kernel of these nodes loads and stores."""
    inside = set(nodes)
    leaving = read_outside(inside)
    return sum(_bytes_of(node, inside, leaving) for node in nodes if not is_view(node))


def counted_operations(nodes: Iterable[torch.fx.Node]) -> dict[torch.fx.Node, int]:
    """Return the estimated floating-point operations of each node; a view has none."""
    return {node: 0 if is_view(node) else operations(node) for node in nodes}


def all_operations(
    nodes: Sequence[torch.fx.Node],
    limits: Sequence[int] = (),
    counted: Mapping[torch.fx.Node, int] | None = None,
) -> int:
    """Return the estimated floating-point operations of a kernel.

    ``limits`` bounds the elements it computes of each node: a foreach partition computes one tensor
    of many, the last stage of a reduction sums partial values only.
    """
    known = counted_operations(nodes) if counted is None else counted
    every = [known[node] for node in nodes]
    return sum(map(min, every, limits)) if limits else sum(every)


def operations(node: torch.fx.Node) -> int:
    """Return the estimated operations of a node: by torch's flop counter, or one per element."""
    if (counted := _counted(node)) is not None:
        return counted
    sizes = [_shape(value) for value in node.all_input_nodes]
    if scores := _scores(node):
        # Two products forward; backward makes the scores again and has four more.
        products = 5 if "backward" in node.name else 2
        return 2 * products * scores * sizes[0][-1]
    return max([_elements(node), *map(math.prod, sizes)])


def read_outside(inside: Set[torch.fx.Node]) -> set[torch.fx.Node]:
    """Return the nodes of a kernel that nodes outside it read."""
    return {node for node in inside if not inside >= set(node.users)}


def is_view(node: torch.fx.Node) -> bool:
    """Tell whether a node is a view of another's memory."""
    name = fx.target_name(node.target)
    return name == "getitem" or is_view_op(name)


def _is_rematerialized(node: torch.fx.Node, stored: Set[torch.fx.Node] | None) -> bool:
    # A constant that the kernel does not store.
    is_constant = node.op == "call_function" and not node.all_input_nodes
    return is_constant and stored is not None and node not in stored


def _instructions(node: torch.fx.Node) -> int:
    """The instructions of an operation of a node."""
    _, _, name = fx.target_name(node.target).partition(".")
    name = name.partition(".")[0]
    # Inductor multiplies by a constant's inverse, and for a power that is a whole number.
    by = node.args[1] if len(node.args) > 1 else None
    if isinstance(by, int | float) and (
        name == "div" or (name == "pow" and float(by).is_integer())
    ):
        return 1
    return INSTRUCTIONS.get(name, 1)


def _times_computed(
    nodes: Sequence[torch.fx.Node], leaving: Set[torch.fx.Node]
) -> dict[torch.fx.Node, int]:
    """How often a kernel computes each element of its nodes, which are in the graph's order.

    A value that it does not store it computes again for each element that reads it. Where it
    reduces rows, a value of as many elements as rows is in a register of each.
    """
    rows = {math.prod(_shape(node)) for node in nodes if _is_reduction(node)}
    computed = dict[torch.fx.Node, int]()
    for node in reversed(nodes):
        own = _elements(node)
        readers = (user for user in node.users if user in computed)
        # A reader with fewer elements reduces it, or picks some of it.
        of = [computed[user] for user in readers if is_view(user) or _elements(user) >= own]
        computed[node] = own if node in leaving or own in rows else max([own, *of])
    return {node: computed[node] // max(_elements(node), 1) or 1 for node in nodes}


def _is_reduction(node: torch.fx.Node) -> bool:
    sizes = [_elements(value) for value in node.all_input_nodes]
    return not is_view(node) and max(sizes, default=0) > _elements(node)


def _loads(node: torch.fx.Node, inside: Set[torch.fx.Node]) -> int:
    """How many of a node's inputs the kernel loads."""
    return sum(_loaded_bytes(value, inside, node) > 0 for value in node.all_input_nodes)


def _bytes_of(node: torch.fx.Node, inside: Set[torch.fx.Node], leaving: Set[torch.fx.Node]) -> int:
    is_copy = fx.target_name(node.target) == "aten.copy_.default"
    by = node.all_input_nodes[1:] if is_copy else node.all_input_nodes
    loads = sum(_loaded_bytes(value, inside, node) for value in by)
    return loads + (_nbytes(node) if _leaves(node, inside, leaving) else 0)


def _loaded_bytes(value: torch.fx.Node, inside: Set[torch.fx.Node], reader: torch.fx.Node) -> int:
    """Bytes loaded from outside the kernel to read a value, through views inside it."""
    if value not in inside:
        name = fx.target_name(reader.target)
        gathers = name.startswith(
            ("aten.embedding.", "aten.gather.", "aten.index.", "aten.index_select.")
        )
        return min(_nbytes(value), _nbytes(reader)) if gathers else _nbytes(value)
    if not is_view(value):
        return 0
    base = sum(_loaded_bytes(source, inside, value) for source in value.all_input_nodes)
    return min(base, _nbytes(value))


def _leaves(node: torch.fx.Node, inside: Set[torch.fx.Node], leaving: Set[torch.fx.Node]) -> bool:
    """Whether a node's value leaves the kernel, itself or through views inside it."""
    seen = (user for user in node.users if user in inside and is_view(user))
    return node in leaving or any(_leaves(user, inside, leaving) for user in seen)


def _counted(node: torch.fx.Node) -> int | None:
    formula = ops.formula_of(node)
    if formula is None or not fx.tensors(node.meta):
        return None
    args, kwargs = torch.fx.map_arg(
        (node.args, node.kwargs), lambda given: fx_names.VAL.of(given.meta)
    )
    try:
        counted = fx.size_hint(formula(*args, **kwargs, out_val=fx_names.VAL.of(node.meta)))
    except (AssertionError, TypeError, ValueError, IndexError):
        return None  # a formula raises on shapes it does not support
    if counted is None:
        return None
    return counted - _counted_for_each_group(node) - _counted_above_diagonal(node, counted)


def _counted_for_each_group(node: torch.fx.Node) -> int:
    """Operations that torch's formula overcounts for a grouped convolution's gradient.

    Source: ``torch/utils/flop_counter.py``, ``conv_backward_flop``: it takes each output channel
    with all input channels, not only those of its group.
    """
    if not fx.target_name(node.target).startswith("aten.convolution_backward."):
        return 0
    gradient, image, weight = (_shape(value) for value in node.args[:3])  # type: ignore[arg-type]
    transposed, groups, wanted = node.args[7], node.args[9], node.args[10]
    if not isinstance(groups, int) or groups == 1 or not wanted[1]:  # type: ignore[index]
        return 0
    outer = image if transposed else gradient
    channels = gradient[1] * image[1]
    ungrouped = 2 * math.prod(weight[2:]) * math.prod(outer[2:]) * channels * image[0]
    return ungrouped - ungrouped // groups


def _counted_above_diagonal(node: torch.fx.Node, counted: int) -> int:
    """Operations that torch's formula overcounts for causal attention: about half."""
    if not ops.is_causal(node):
        return 0
    first = 1 if "backward" in fx.target_name(node.target) else 0
    query, key = (_shape(value) for value in node.args[first : first + 2])  # type: ignore[arg-type]
    rows = query[2]
    return counted - counted * (rows + 1) // (2 * rows) if rows == key[2] else 0


def _scores(node: torch.fx.Node) -> int:
    """The number of scores that a FlexAttention node computes, without its mask."""
    if not fx.target_name(node.target).startswith("flex_attention"):
        return 0
    query, key = (_shape(value) for value in node.all_input_nodes[:2])
    return math.prod(query[:-1]) * key[-2] if len(query) == len(key) == 4 else 0


def _shape(node: torch.fx.Node) -> tuple[int, ...]:
    values: tuple[torch.Tensor, ...] = fx.tensors(node.meta)
    return _sizes(values[0]) if values else ()


def _elements(node: torch.fx.Node) -> int:
    return sum(math.prod(_sizes(value)) for value in fx.tensors(node.meta))


def _sizes(value: torch.Tensor) -> tuple[int, ...]:
    return tuple(fx.size_hint(size) or 1 for size in value.shape)


def _nbytes(node: torch.fx.Node) -> int:
    return sum(math.prod(_sizes(each)) * each.element_size() for each in fx.tensors(node.meta))
