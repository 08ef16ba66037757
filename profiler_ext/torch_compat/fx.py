"""Typed access to FX nodes' metadata and graphs; what it returns is builtins only.

Source: keys as set in ``torch/fx/proxy.py``, ``torch/_functorch/_aot_autograd`` and
``torch/_dynamo/output_graph.py``; regions in ``torch/fx/passes/regional_inductor.py``.
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

from profiler_ext.torch_compat import behaviour, private
from profiler_ext.torch_compat.names import fx_names

_MADE_OF = re.compile("^(?:FSDP|Replicate|DDP)")


def without_prefix(class_name: str) -> str:
    """Return a class name without the prefix of the classes that torch derives.

    Source: ``_apply_to_module`` in ``torch/distributed/fsdp/_fully_shard/_fsdp_init.py``,
    ``replicate`` in ``torch/distributed/_composable/replicate.py``.
    """
    return _MADE_OF.sub("", class_name)


def user_name(kind: type) -> str:
    """Return the user's name for a class, which torch may have derived its own from."""
    own = without_prefix(kind.__name__)
    return own if own in {base.__name__ for base in kind.__bases__} else kind.__name__


Meta = Mapping[str, Any]
_ASKS = re.compile(r"(_autograd_grad|grad)(_\d+)?")


VALUES = frozenset({fx_names.VAL.name, fx_names.EXAMPLE_VALUE.name})
"""Keys of a node's value."""


def target_name(target: Any) -> str:
    """Return a target in FX spelling: ``aten.addmm.default``, ``getitem``."""
    if isinstance(target, str):
        return target
    if fx_names.OP_OVERLOAD.is_type_of(target):
        return _spelled(target)
    return str(getattr(target, "__name__", target))


@functools.lru_cache(maxsize=1024)
def _spelled(op: Any) -> str:
    """Return the name of an operator, cached: torch builds it each time."""
    return str(op)


def is_tracing() -> bool:
    """Tell whether a graph is being traced whose nodes keep their metadata."""
    return bool(fx_names.HAS_PRESERVED_META.kept()())


def replayed_node() -> torch.fx.Node | None:
    """Return the original of the view that functionalization is replaying."""
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

    The others are constants to whatever traces the graph's code again.
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
    """Return the metadata that identify a node's origin; ``None`` if the user labelled it."""
    op, number, stack, modules, of_forward, source, source_of_forward, *rest = fx_names.ORIGIN.of(
        meta
    )
    if rest[-1]:
        return None
    within = tuple((modules or of_forward or {}).values())
    called = tuple([entry[0] for entry in source or source_of_forward or ()])
    return op, number, stack, within, called, *rest


def integer(meta: Meta, key: private.Key) -> int | None:
    """Return an integer entry, or ``None``."""
    value = key.of(meta)
    return value if isinstance(value, int) else None


def text(meta: Meta, key: private.Key) -> str | None:
    """Return an entry as text, or ``None``; an enum gives its name."""
    value = key.of(meta)
    if value is None:
        return None
    return str(value.name if isinstance(value, enum.Enum) else value)


def autograd_backward(meta: Meta) -> bool | None:
    """Return torch's tag, own or among the shared labels; ``None`` if this torch has none."""
    tag = fx_names.AUTOGRAD_BACKWARD
    if (custom := _custom(meta)) and (shared := tag.of(custom)) is not None:
        return bool(shared)
    return bool(tag.of(meta)) if behaviour.TAGS_BACKWARD_NODES else None


def source_fns(meta: Meta) -> tuple[str, ...]:
    """Return the names in the node's own, else its forward's, ``source_fn_stack``."""
    stack = fx_names.SOURCE_FN_STACK.of(meta) or fx_names.FWD_SOURCE_FN_STACK.of(meta) or ()
    return tuple([str(entry[0]) for entry in stack])


def calls_autograd_grad(source_fns: Sequence[str]) -> bool:
    """Tell whether source functions end with ``autograd.grad``."""
    return bool(_ASKS.fullmatch("".join(source_fns[-1:])))


def module_stack(meta: Meta) -> tuple[tuple[str, str], ...]:
    """Return ``(path, class name)`` from the root inwards, own or the forward's."""
    stack = fx_names.NN_MODULE_STACK.of(meta) or fx_names.FWD_NN_MODULE_STACK.of(meta) or {}
    return tuple([(str(path), _class_name(kind)) for path, kind in stack.values()])


def _class_name(kind: object) -> str:
    return user_name(kind) if isinstance(kind, type) else str(kind).rpartition(".")[2].strip("'>")


def annotation(meta: Meta) -> tuple[tuple[str, str], ...]:
    """Return the user's own labels (``torch.fx.traceback.annotate``), sorted."""
    if not (custom := _custom(meta)):
        return ()
    labels = ((str(key), _label(value)) for key, value in custom.items())
    return tuple(sorted(label for label in labels if label[0] != fx_names.AUTOGRAD_BACKWARD.name))


def _label(value: Any) -> str:
    # The text of an object may contain an address.
    is_plain = isinstance(value, str | int | float | bool | None)
    return str(value) if is_plain else type(value).__name__


def _custom(meta: Meta) -> Mapping[Any, Any]:
    custom = fx_names.CUSTOM.of(meta)
    return custom if isinstance(custom, Mapping) else {}


def tensors(meta: Meta) -> tuple[torch.Tensor, ...]:
    """Return the fake tensors in a node's value."""
    value = fx_names.VAL.of(meta) if fx_names.VAL.text in meta else fx_names.EXAMPLE_VALUE.of(meta)
    entries = value if isinstance(value, list | tuple) else (value,)
    return tuple(entry for entry in entries if isinstance(entry, torch.Tensor))


def has_value(meta: Meta) -> bool:
    """Tell whether a node's value was recorded."""
    return fx_names.VAL.of(meta) is not None


def size_hint(size: Any) -> int | None:
    """Return a size as an integer; of a symbolic one its hint, if it has one."""
    if isinstance(size, int) or not isinstance(size, torch.SymInt):
        return size if isinstance(size, int) else None
    hint = fx_names.SYM_HINT.of(fx_names.SYM_NODE.of(size))
    return hint if isinstance(hint, int) else None


def call_nodes(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Return the nodes of a graph that call a function."""
    return [node for node in graph.nodes if node.op == "call_function"]


def node_name(node: torch.fx.Node | str) -> str:
    """Return the name of a node, or of what replaces it."""
    return node.name if isinstance(node, torch.fx.Node) else str(node)


_Order = WeakKeyDictionary[torch.fx.Node, int]
_POSITIONS: WeakKeyDictionary[torch.fx.Graph, tuple[int, _Order]] = WeakKeyDictionary()
"""Nodes are weak keys as well: a node keeps its graph alive."""


def position(node: torch.fx.Node) -> int:
    """Return a node's position in its graph, whose order is cached."""
    size, graph = len(node.graph.nodes), node.graph
    known = _POSITIONS.get(graph)
    if known is None or known[0] != size or node not in known[1]:
        order = _Order((member, index) for index, member in enumerate(graph.nodes))
        known = _POSITIONS[graph] = size, order
    return known[1].get(node, size)


def carried_op(node: torch.fx.Node) -> Any:
    """Return the operator that a higher-order op's node carries, if any."""
    if not fx_names.HIGHER_ORDER_OP.is_type_of(node.target):
        return None
    return next((v for v in node.args if fx_names.OP_OVERLOAD.is_type_of(v)), None)


def nested(node: torch.fx.Node) -> Iterator[tuple[str, torch.fx.GraphModule]]:
    """Return the graph modules that a node calls, by attribute name."""
    owner = node.graph.owning_module
    for value in node.all_input_nodes:
        module = getattr(owner, str(value.target), None) if value.op == "get_attr" else None
        if isinstance(module, torch.fx.GraphModule):
            yield str(value.target), module


def graph_modules(gm: torch.fx.GraphModule) -> Iterable[torch.fx.GraphModule]:
    """Return a graph module and those nested in it."""
    return (module for module in gm.modules() if isinstance(module, torch.fx.GraphModule))


COLLECTIVES = ("_c10d_functional.", "_dtensor.")
"""Prefixes of the operators that communicate."""


def is_collective(original_aten: str | None) -> bool:
    """Tell whether a traced node communicates, or waits for a collective."""
    return (original_aten or "").startswith(COLLECTIVES)


def is_wait(original_aten: str | None) -> bool:
    """Tell whether a traced node waits for a collective."""
    return (original_aten or "").startswith("_c10d_functional.wait_tensor")


def has_region_marks(gm: torch.fx.GraphModule) -> bool:
    """Tell whether a graph, or one nested in it, has nodes that are marked as a region's."""
    every = (node for graph in graph_modules(gm) for node in graph.graph.nodes)
    mark = fx_names.REGION_MARK.text
    return any(mark in (fx_names.CUSTOM.of(node.meta) or {}) for node in every)


def has_flat_regions(gm: torch.fx.GraphModule) -> bool:
    """Tell whether the graph itself calls all regions, each once and in order."""
    nested = (g.graph for g in graph_modules(gm) if g is not gm)
    calls = (n for graph in nested for n in graph.nodes if n.op == "call_module")
    return not any(str(node.target).startswith(fx_names.SCOOPED.text) for node in calls)


def has_tangents(graph: torch.fx.Graph) -> bool:
    """Tell whether a graph takes gradients of outputs: a joint graph, or a backward half.

    Source: ``torch/_functorch/partitioners.py``, ``_is_tangent``.
    """
    return any("tangents" in str(n.target) for n in graph.nodes if n.op == "placeholder")


def traced_from(node: torch.fx.Node) -> str | None:
    """Return the name of the node that a node was traced from.

    Source: ``torch/fx/traceback.py``, ``set_current_meta``, which restarts the list.
    """
    sources = fx_names.FROM_NODE.of(node.meta) or ()
    return str(fx_names.FROM_NAME.of(sources[-1])) if sources else None
