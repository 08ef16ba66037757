"""Typed access to FX nodes' metadata and graphs; what it returns is builtins only.

``fully_shard`` and ``replicate`` give a module a class of its own, which extends the user's and is
called ``FSDP``, ``Replicate`` or ``DDP`` and the name of that. Source: ``_apply_to_module`` in
``torch/distributed/fsdp/_fully_shard/_fsdp_init.py``, ``replicate`` in
``torch/distributed/_composable/replicate.py``.

Source: keys as set in ``torch/fx/proxy.py``, ``torch/_functorch/_aot_autograd`` and
``torch/_dynamo/output_graph.py``.

Source: ``torch/fx/passes/regional_inductor.py``. A region's nodes are scooped into a module of
their own, each with its name and its metadata, and that module is traced and compiled anew.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.fx

from profiler_ext.torch_compat import behaviour, fx
from profiler_ext.torch_compat.names import fx_names
from profiler_ext.torch_compat.private import Key

_MADE_OF = re.compile("^(?:FSDP|Replicate|DDP)")


def without_prefix(class_name: str) -> str:
    """Return a class's name without what torch puts before the name of one that it extends."""
    return _MADE_OF.sub("", class_name)


def user_name(kind: type) -> str:
    """Return how the user calls a class: by its own name, unless torch made it of theirs."""
    own = without_prefix(kind.__name__)
    return own if own in {base.__name__ for base in kind.__bases__} else kind.__name__


Meta = Mapping[str, Any]
_ASKS = re.compile(r"(_autograd_grad|grad)(_\d+)?")


VALUES = frozenset({fx_names.VAL.name, fx_names.EXAMPLE_VALUE.name})
"""Keys of what a node yields."""


def target_name(target: Any) -> str:
    """Return a target in FX spelling: ``aten.addmm.default``, ``getitem``."""
    if isinstance(target, str):
        return target
    if fx_names.OP_OVERLOAD.is_type_of(target):
        return _spelled(target)
    return str(getattr(target, "__name__", target))


@functools.lru_cache(maxsize=1024)
def _spelled(op: Any) -> str:
    """Return the name of an operator, which puts it together each time that it is asked."""
    return str(op)


def is_tracing() -> bool:
    """Tell whether a graph is traced whose nodes keep what torch knows of their origin."""
    return bool(fx_names.HAS_PRESERVED_META.kept()())


def replayed_node() -> torch.fx.Node | None:
    """Return the view that functionalization makes anew now, as it was made before."""
    node: torch.fx.Node | None = fx_names.REPLAY_NODE.kept()()
    return node


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
    calls = []
    for node in graph.nodes:
        if node.op == "call_function" and not dependent.isdisjoint(node.all_input_nodes):
            dependent.add(node)
            calls.append((node.name, target_name(node.target)))
    return tuple(calls)


def op_name(node: torch.fx.Node) -> str:
    """Return an operator's bare name: ``sub`` for ``operator.sub`` and ``aten.sub.Tensor``."""
    name = target_name(node.target)
    return name.split(".")[1] if name.startswith("aten.") else name


def original_aten(meta: Meta) -> str | None:
    """Return the op before decomposition."""
    op = fx_names.ORIGINAL_ATEN.of(meta)
    if op is None:
        return None
    return _spelled(op) if fx_names.OP_OVERLOAD.is_type_of(op) else str(op)


def commented_op(node: torch.fx.Node) -> str | None:
    """Return the op as a comment in generated code names it: ``aten.view``, without overload.

    Source: ``torch/_inductor/utils.py``, ``get_kernel_metadata``.
    """
    op = fx_names.ORIGINAL_ATEN.of(node.meta)
    if fx_names.OP_OVERLOAD.is_type_of(op):
        return str(fx_names.OVERLOADPACKET.of(op))
    return str(op.__name__) if fx_names.HIGHER_ORDER_OP.is_type_of(op) else None


def origin_metadata(meta: Meta) -> tuple[Any, ...] | None:
    """Return what tells a node's origin from others': equal values are of equal origins.

    Returns:
        The values; ``None`` of a node with labels, which may be anything.
    """
    op, number, stack, modules, of_forward, source, source_of_forward, *rest = fx_names.ORIGIN.of(
        meta
    )
    if rest[-1]:
        return None
    within = tuple((modules or of_forward or {}).values())
    called = tuple([entry[0] for entry in source or source_of_forward or ()])
    return op, number, stack, within, called, *rest


def integer(meta: Meta, key: Key) -> int | None:
    """Return an integer entry, or ``None``."""
    value = key.of(meta)
    return value if isinstance(value, int) else None


def text(meta: Meta, key: Key) -> str | None:
    """Return an entry as text, or ``None``, as :func:`integer` does; enums give their name."""
    value = key.of(meta)
    if value is None:
        return None
    return str(value.name if isinstance(value, enum.Enum) else value)


def autograd_backward(meta: Meta) -> bool | None:
    """Return torch's tag; ``None`` where this torch never writes it.

    Where it stands among the labels that nodes share, it is there or absent.
    """
    tag = fx_names.AUTOGRAD_BACKWARD
    if (custom := _custom(meta)) and (shared := tag.of(custom)) is not None:
        return bool(shared)
    return bool(tag.of(meta)) if behaviour.TAGS_BACKWARD_NODES else None


def source_fns(meta: Meta) -> tuple[str, ...]:
    """Return the names in the node's own, else its forward's, ``source_fn_stack``."""
    stack = fx_names.SOURCE_FN_STACK.of(meta) or fx_names.FWD_SOURCE_FN_STACK.of(meta) or ()
    return tuple([str(entry[0]) for entry in stack])


def calls_autograd_grad(source_fns: Sequence[str]) -> bool:
    """Tell whether source functions, outermost first, end with the call for a gradient."""
    return bool(_ASKS.fullmatch("".join(source_fns[-1:])))


def module_stack(meta: Meta) -> tuple[tuple[str, str], ...]:
    """Return ``(path, class name)`` from the root inwards, own or the forward's."""
    stack = fx_names.NN_MODULE_STACK.of(meta) or fx_names.FWD_NN_MODULE_STACK.of(meta) or {}
    return tuple(
        [
            (
                str(path),
                (
                    user_name(kind)
                    if isinstance(kind, type)
                    else str(kind).rpartition(".")[2].strip("'>")
                ),
            )
            for path, kind in stack.values()
        ]
    )


def annotation(meta: Meta) -> tuple[tuple[str, str], ...]:
    """Return the user's own labels (``torch.fx.traceback.annotate``), sorted.

    A value that is an object gives its class: its text may hold an address of this process.
    """
    if not (custom := _custom(meta)):
        return ()
    labels = ((str(key), _label(value)) for key, value in custom.items())
    return tuple(sorted(label for label in labels if label[0] != fx_names.AUTOGRAD_BACKWARD.name))


def _label(value: Any) -> str:
    is_plain = isinstance(value, str | int | float | bool | None)
    return str(value) if is_plain else type(value).__name__


def _custom(meta: Meta) -> Mapping[Any, Any]:
    custom = fx_names.CUSTOM.of(meta)
    return custom if isinstance(custom, Mapping) else {}


def tensors(meta: Meta) -> tuple[torch.Tensor, ...]:
    """Return the fake tensors that a node yields."""
    value = fx_names.VAL.of(meta) if fx_names.VAL.text in meta else fx_names.EXAMPLE_VALUE.of(meta)
    entries = value if isinstance(value, list | tuple) else (value,)
    return tuple(entry for entry in entries if isinstance(entry, torch.Tensor))


def has_value(meta: Meta) -> bool:
    """Tell whether it was noted what a node yields."""
    return fx_names.VAL.of(meta) is not None


def size_hint(size: Any) -> int | None:
    """Return a size as an integer, its hint where it is symbolic, ``None`` where it has none."""
    if isinstance(size, int) or not isinstance(size, torch.SymInt):
        return size if isinstance(size, int) else None
    hint = fx_names.SYM_HINT.of(fx_names.SYM_NODE.of(size))
    return hint if isinstance(hint, int) else None


def call_nodes(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Return the nodes of a graph that call a function."""
    return [node for node in graph.nodes if node.op == "call_function"]


def node_name(node: torch.fx.Node | str) -> str:
    """Return the name of a node, or what is given in its place."""
    return node.name if isinstance(node, torch.fx.Node) else str(node)


_Order = WeakKeyDictionary[torch.fx.Node, int]
_POSITIONS: WeakKeyDictionary[torch.fx.Graph, tuple[int, _Order]] = WeakKeyDictionary()
"""Nodes are weak keys, too: a node holds its graph, which would live for ever."""


def position(node: torch.fx.Node) -> int:
    """Return a node's place in its graph; the graph's order is read once for many nodes."""
    size, graph = len(node.graph.nodes), node.graph
    known = _POSITIONS.get(graph)
    if known is None or known[0] != size or node not in known[1]:
        order = _Order((member, index) for index, member in enumerate(graph.nodes))
        known = _POSITIONS[graph] = size, order
    return known[1].get(node, size)


def carried_op(node: torch.fx.Node) -> Any:
    """Return the operator that a higher-order op's node carries, or ``None``."""
    if not fx_names.HIGHER_ORDER_OP.is_type_of(node.target):
        return None
    return next((v for v in node.args if fx_names.OP_OVERLOAD.is_type_of(v)), None)


def nested(node: torch.fx.Node) -> Iterator[tuple[str, torch.fx.GraphModule]]:
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


def is_collective(original_aten: str | None) -> bool:
    """Tell whether a node that was traced communicates, or waits for what did."""
    return (original_aten or "").startswith(COLLECTIVES)


def is_wait(original_aten: str | None) -> bool:
    """Tell whether a node that was traced waits for a collective."""
    return (original_aten or "").startswith("_c10d_functional.wait_tensor")


def has_region_marks(gm: torch.fx.GraphModule) -> bool:
    """Tell whether a graph, or one nested in it, has nodes that are marked as a region's."""
    every = (node for graph in fx.graph_modules(gm) for node in graph.graph.nodes)
    mark = fx_names.REGION_MARK.text
    return any(mark in (fx_names.CUSTOM.of(node.meta) or {}) for node in every)


def has_flat_regions(gm: torch.fx.GraphModule) -> bool:
    """Tell whether all regions are called by the graph itself, so each once and in order."""
    nested = (g.graph for g in fx.graph_modules(gm) if g is not gm)
    return not any(
        (node.op == "call_module" and str(node.target).startswith(fx_names.SCOOPED.text))
        for graph in nested
        for node in graph.nodes
    )


def has_tangents(graph: torch.fx.Graph) -> bool:
    """Tell whether a graph takes the gradients of outputs: a joint graph, or a backward half.

    Source: ``torch/_functorch/partitioners.py``, ``_is_tangent``.
    """
    return any("tangents" in str(n.target) for n in graph.nodes if n.op == "placeholder")


def traced_from(node: torch.fx.Node) -> str | None:
    """Return the name of the node that ran while a node was traced.

    Source: ``torch/fx/traceback.py``, ``set_current_meta``, which starts the list anew.
    """
    sources = fx_names.FROM_NODE.of(node.meta) or ()
    return str(fx_names.FROM_NAME.of(sources[-1])) if sources else None
