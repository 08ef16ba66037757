"""Owns typed access to FX nodes' metadata; what it returns is builtins only.

Source: keys as set in ``torch/fx/proxy.py``, ``torch/_functorch/_aot_autograd`` and
``torch/_dynamo/output_graph.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.fx
import torch.fx.traceback

Meta = Mapping[str, Any]
_SHARED_TAG = "autograd_backward"
_ORIGIN = (
    "seq_nr",
    "partitioner_tag",
    "original_aten",
    "stack_trace",
    "nn_module_stack",
    "fwd_nn_module_stack",
    "source_fn_stack",
    "fwd_source_fn_stack",
    "is_gradient_acc",
)


def target_name(target: Any) -> str:
    """Return a target in FX spelling: ``aten.addmm.default``, ``getitem``."""
    if isinstance(target, str):
        return target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return str(getattr(target, "__name__", target))


def is_tracing() -> bool:
    """Tell whether a graph is traced whose nodes keep what torch knows of their origin."""
    return torch.fx.traceback.has_preserved_node_meta()


def call_text(node: torch.fx.Node) -> str:
    """Return what a node calls with which constants; values of other nodes are left open."""
    given = torch.fx.map_arg((node.args, node.kwargs), lambda _: None)
    return f"{target_name(node.target)} {given}"


def is_input_copy(node: torch.fx.Node) -> bool:
    """Tell whether a node writes a value into an input of its graph.

    Source: ``torch/_functorch/_aot_autograd/graph_capture_wrappers.py``,
    ``apply_in_graph_mutations``.
    """
    if node.op != "call_function" or target_name(node.target) != "aten.copy_.default":
        return False
    return all(isinstance(a, torch.fx.Node) for a in node.args[:2]) and (
        node.all_input_nodes[0].op == "placeholder"
    )


def dependent_calls(graph: torch.fx.Graph) -> tuple[tuple[str, str], ...]:
    """Return the name and the target of each call that depends on an input, in order.

    Those that depend on none are constants to whoever traces the graph's code again.
    """
    dependent = {node for node in graph.nodes if node.op == "placeholder"}
    found = []
    for node in graph.nodes:
        if node.op == "call_function" and not dependent.isdisjoint(node.all_input_nodes):
            dependent.add(node)
            found.append((node.name, target_name(node.target)))
    return tuple(found)


def op_name(node: torch.fx.Node) -> str:
    """Return an operator's bare name: ``sub`` for ``operator.sub`` and ``aten.sub.Tensor``."""
    name = target_name(node.target)
    return name.split(".")[1] if name.startswith("aten.") else name


def original_aten(meta: Meta) -> str | None:
    """Return the op before decomposition."""
    op = meta.get("original_aten")
    return None if op is None else str(op)


def commented_op(node: torch.fx.Node) -> str | None:
    """Return the op as a comment in generated code names it: ``aten.view``, without overload.

    Source: ``torch/_inductor/utils.py``, ``get_kernel_metadata``.
    """
    op = node.meta.get("original_aten")
    if isinstance(op, torch._ops.OpOverload):
        return str(op.overloadpacket)
    return op.__name__ if isinstance(op, torch._ops.HigherOrderOperator) else None


def integer(meta: Meta, key: str) -> int | None:
    """Return an integer entry, or ``None``."""
    value = meta.get(key)
    return value if isinstance(value, int) else None


def text(meta: Meta, key: str) -> str | None:
    """Return an entry as text, or ``None``; enums give their name."""
    value = meta.get(key)
    return None if value is None else str(getattr(value, "name", value))


def autograd_backward(meta: Meta) -> bool | None:
    """Return torch's tag; ``None`` where this torch never writes it.

    Builds before 2.12 kept it among the labels that nodes share: then it is there or absent.
    """
    if (shared := _custom(meta).get(_SHARED_TAG)) is not None:
        return bool(shared)
    return bool(meta.get("autograd_backward", False)) if has_autograd_backward() else None


@functools.cache
def has_autograd_backward() -> bool:
    """Tell whether this torch tags nodes with ``autograd_backward`` (2.12 and later)."""
    import inspect

    return "autograd_backward" in inspect.getsource(torch.fx.traceback)


def source_fns(meta: Meta) -> tuple[str, ...]:
    """Return the names in the node's own, else its forward's, ``source_fn_stack``."""
    stack = meta.get("source_fn_stack") or meta.get("fwd_source_fn_stack") or ()
    return tuple(str(entry[0]) for entry in stack)


def module_stack(meta: Meta) -> tuple[tuple[str, str], ...]:
    """Return ``(path, class name)`` from the root inwards, own or the forward's."""
    stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}
    return tuple((str(path), _class_name(kind)) for path, kind in stack.values())


def _class_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2].strip("'>")


def origin(meta: Meta) -> Meta:
    """Return what a node says of where it comes from; what it does not say is ``None``."""
    return {key: meta.get(key) for key in _ORIGIN}


def annotation(meta: Meta) -> tuple[tuple[str, str], ...]:
    """Return the user's own labels (``torch.fx.traceback.annotate``), sorted.

    A value that is an object gives its class: its text may hold an address of this process.
    """
    labels = ((str(key), _label(value)) for key, value in _custom(meta).items())
    return tuple(sorted(label for label in labels if label[0] != _SHARED_TAG))


def _label(value: Any) -> str:
    is_plain = isinstance(value, str | int | float | bool | None)
    return str(value) if is_plain else type(value).__name__


def _custom(meta: Meta) -> Mapping[Any, Any]:
    custom = meta.get("custom")
    return custom if isinstance(custom, Mapping) else {}


def tensors(meta: Meta) -> tuple[torch.Tensor, ...]:
    """Return the fake tensors that a node yields."""
    value = meta.get("val", meta.get("example_value"))
    entries = value if isinstance(value, list | tuple) else (value,)
    return tuple(entry for entry in entries if isinstance(entry, torch.Tensor))


def size_hint(size: Any) -> int | None:
    """Return a size as an integer, its hint where it is symbolic, ``None`` where it has none."""
    if isinstance(size, int):
        return size
    hint = getattr(getattr(size, "node", None), "hint", None)
    return hint if isinstance(hint, int) else None


@contextmanager
def watching_replacements(
    gm: torch.fx.GraphModule, on_replace: Callable[..., None]
) -> Iterator[None]:
    """Report each replacement made in a graph.

    Args:
        gm: the graph's module.
        on_replace: takes ``old``, ``new`` and ``user`` by these names, amid torch's passes: it
            must not raise.

    Source: ``torch/fx/graph_module.py``, ``GraphModule._register_replace_node_hook``.
    """
    gm._register_replace_node_hook(on_replace)
    try:
        yield
    finally:
        gm._unregister_replace_node_hook(on_replace)


def node_name(node: Any) -> str:
    """Return the name of a node, or what is given in its place."""
    return str(getattr(node, "name", node))


_POSITIONS: WeakKeyDictionary[torch.fx.Graph, tuple[int, dict[torch.fx.Node, int]]] = (
    WeakKeyDictionary()
)


def position(node: torch.fx.Node) -> int:
    """Return a node's place in its graph; the graph's order is read once for many nodes."""
    size, order = _POSITIONS.get(node.graph, (-1, {}))
    if size != len(node.graph.nodes) or node not in order:
        order = {member: index for index, member in enumerate(node.graph.nodes)}
        _POSITIONS[node.graph] = len(node.graph.nodes), order
    return order.get(node, len(order))


def carried_op(node: torch.fx.Node) -> Any:
    """Return the operator that a higher-order op's node carries, or ``None``."""
    if not isinstance(node.target, torch._ops.HigherOrderOperator):
        return None
    return next((v for v in node.args if isinstance(v, torch._ops.OpOverload)), None)


def is_random(node: torch.fx.Node) -> bool:
    """Tell whether a node draws random numbers."""
    tags = node.target.tags if isinstance(node.target, torch._ops.OpOverload) else ()
    return torch.Tag.nondeterministic_seeded in tags


def draws(node: torch.fx.Node) -> bool:
    """Tell whether random numbers are drawn for a node; attention without dropout has none."""
    if target_name(node.target) == _LOOKUP:
        return True
    if not is_random(node) or drawn_for(node) != (node,):
        return False
    schema = node.target._schema.arguments if isinstance(node.target, torch._ops.OpOverload) else ()
    given: dict[str, Any] = {argument.name: argument.default_value for argument in schema}
    given.update(zip(given, node.args, strict=False))
    return bool({**given, **node.kwargs}.get("dropout_p", 1.0) != 0.0)


_SEEDS, _LOOKUP = "prims.inductor_seeds.default", "prims.inductor_lookup_seed.default"


def drawn_for(node: torch.fx.Node) -> tuple[torch.fx.Node, ...]:
    """Return the nodes that a node draws for: one call draws the seeds of all random calls.

    Source: ``torch/_inductor/fx_passes/replace_random.py``, ``fuse_seed_creation_pass``; the
    call that draws keeps the metadata of the last one only.
    """
    if target_name(node.target) != _SEEDS:
        return (node,)
    return tuple(user for user in node.users if target_name(user.target) == _LOOKUP) or (node,)


def nested(
    node: torch.fx.Node,
) -> Iterator[tuple[str, torch.fx.GraphModule]]:
    """Return the graph modules that a node calls, by their attribute's name."""
    owner = node.graph.owning_module
    for value in node.all_input_nodes:
        module = getattr(owner, str(value.target), None) if value.op == "get_attr" else None
        if isinstance(module, torch.fx.GraphModule):
            yield str(value.target), module


def graph_modules(gm: torch.fx.GraphModule) -> Iterable[torch.fx.GraphModule]:
    """Return a graph module and those nested in it."""
    return (module for module in gm.modules() if isinstance(module, torch.fx.GraphModule))


COLLECTIVES = ("_c10d_functional.", "_dtensor.")
"""How the operators begin that communicate."""


def is_collective(meta: Meta) -> bool:
    """Tell whether a node that was traced communicates, or waits for what did."""
    return (original_aten(meta) or "").startswith(COLLECTIVES)


def is_wait(meta: Meta) -> bool:
    """Tell whether a node that was traced waits for a collective."""
    return (original_aten(meta) or "").startswith("_c10d_functional.wait_tensor")
