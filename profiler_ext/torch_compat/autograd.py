"""What runs while a graph is traced: autograd's nodes, with numbers and edges, and hooks' bodies.

Source: ``torch/fx/graph.py``, ``CodeGen._gen_python_code``;
``torch/_higher_order_ops/register_hook.py``, ``RegisterHookOp``; ``torch/csrc/autograd/function.h``
(``Node``), ``torch/csrc/autograd/init.cpp``.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

import torch.autograd.graph
import torch.fx

from profiler_ext.torch_compat.names import running_names

_ASSIGNED = re.compile(r"(?:^|;)\s*(\w+)(?:\s*:[^=;]*)? = ")
_HOOKS = "torch._higher_order_ops.register_hook"
_FILE_OF_HOOKS = "/torch/_higher_order_ops/register_hook.py"


def names_of_lines(gm: torch.fx.GraphModule) -> dict[int, str]:
    """Return the node that each line of a graph's code makes, which is one per line."""
    names, names_by_line = {node.name for node in gm.graph.nodes}, {}
    for number, line in enumerate(gm.code.splitlines(), 1):
        made = next((name for name in _ASSIGNED.findall(line) if name in names), None)
        if made is not None:
            names.remove(made)
            names_by_line[number] = made
    return names_by_line


def node_of_hook() -> torch.fx.Node | None:
    """Return the node of a hook's body that is being traced, if any."""
    # Dynamo imports the module when a program registers its first hook.
    frame = _frame_of_body() if _HOOKS in sys.modules else None
    if frame is None or (body := graph_of(frame)) is None:
        return None
    name = names_of_lines(body).get(frame.f_lineno)
    return next((node for node in body.graph.nodes if node.name == name), None)


def _frame_of_body() -> FrameType | None:
    """Return the frame of the hook's body, not of a graph that the body calls."""
    body: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.endswith(_FILE_OF_HOOKS):
        if frame.f_code.co_name == "forward" and graph_of(frame) is not None:
            body = frame
        frame = frame.f_back
    return None if frame is None else body


def graph_of(frame: FrameType) -> torch.fx.GraphModule | None:
    """Return the graph whose code a frame runs, if it runs a graph's."""
    method_of = frame.f_locals.get("".join(frame.f_code.co_varnames[:1]))
    return method_of if isinstance(method_of, torch.fx.GraphModule) else None


class AutogradNode(NamedTuple):
    """A node of autograd: ``MulBackward0``, and its sequence number."""

    name: str
    number: int


COPY_SLICES = "torch::autograd::CopySlices"
"""The node of an op that mutates a view; it leads to the base."""

_LEAF_SEQUENCE_NR = 2**64 - 1
"""The number of all nodes that accumulate gradients."""

_INPUT_NODE = "torch::autograd::Error"
"""Torch puts it in front of each input of a traced graph; it would raise if it ran."""

_GRAPH_ROOT = AutogradNode("torch::autograd::GraphRoot", _LEAF_SEQUENCE_NR - 1)
"""It sends a backward its first gradients, and is made after all other nodes."""

ANY_INPUT = -1
"""An unknown input, of a node that gets a first gradient."""


class Edge(NamedTuple):
    """Where an autograd node sends a gradient: another node, and which of its inputs."""

    to: AutogradNode
    input: int
    leaf: object = None  # the node of a parameter or input, whose name and number are not unique


Edges = Mapping[AutogradNode, tuple[Edge, ...]]
"""The edges of each autograd node, in order."""


def current_autograd_node() -> AutogradNode | None:
    """Return the autograd node that runs in this thread."""
    node = _current()
    return None if node is None else _named(node)


def feeds_twice() -> bool:
    """Tell whether the running node sends two gradients to one input of another node."""
    node = _current()
    edges = Counter(node.next_functions) if node is not None else Counter()
    return any(count > 1 for (to, _), count in edges.items() if to is not None)


def note_edges(known: dict[AutogradNode, tuple[Edge, ...]]) -> None:
    """Add the edges of the running node, and of all that follow it."""
    first = _current()
    _add_edges(known, () if first is None else (first,))


def edges_of_backward(
    roots: Iterable[torch.autograd.graph.Node],
) -> dict[AutogradNode, tuple[Edge, ...]]:
    """Return the edges of a whole backward, with those of its first gradients."""
    first = tuple(roots)
    known = {_GRAPH_ROOT: tuple(Edge(_named(node), ANY_INPUT) for node in first)}
    _add_edges(known, first)
    return known


def _add_edges(
    known: dict[AutogradNode, tuple[Edge, ...]], first: Iterable[torch.autograd.graph.Node]
) -> None:
    todo = [(_named(node), node) for node in first]
    while todo:
        key, node = todo.pop()
        if key in known or _is_leaf(key):
            continue
        edges = [(_named(to), to, at) for to, at in node.next_functions if to is not None]
        known[key] = tuple(
            [Edge(named, at, to if _is_leaf(named) else None) for named, to, at in edges]
        )
        todo += [(named, to) for named, to, _ in edges]


def _is_leaf(node: AutogradNode) -> bool:
    """Tell whether a node receives the gradient of a value that no op made."""
    return node.number == _LEAF_SEQUENCE_NR or node.name == _INPUT_NODE


def _named(node: torch.autograd.graph.Node) -> AutogradNode:
    return AutogradNode(node.name(), int(running_names.NODE_SEQUENCE_NR.of(node)()))


def last_sequence_nr() -> int:
    """Return the number of the autograd node that this thread made last."""
    return int(running_names.LAST_SEQUENCE_NR.kept()()) - 1


def _current() -> torch.autograd.graph.Node | None:
    node: torch.autograd.graph.Node | None = running_names.CURRENT_NODE.kept()()
    return node


def nodes_of(outputs: Iterable[Any]) -> list[torch.autograd.graph.Node]:
    """Return the nodes at which a backward begins that gets tensors or gradient edges."""
    nodes = [each.grad_fn if isinstance(each, torch.Tensor) else each.node for each in outputs]
    return [each for each in nodes if each is not None]


class SavedTensor(NamedTuple):
    """A tensor that a node of autograd holds for its backward."""

    node: AutogradNode
    attribute: str  # ``self``, ``saved_tensors[2]``, or a name that the program gave it
    tensor: torch.Tensor


def saved_tensors(roots: Iterable[torch.autograd.graph.Node]) -> Iterator[SavedTensor]:
    """Yield what the nodes of a backward hold.

    It is read packed: to unpack it could recompute or copy it, by the program's hooks. What hooks
    packed into something else than tensors is left out.

    Source: ``torch/csrc/autograd/init.cpp``, ``SavedTensor.data``; ``python_function.cpp``.
    """
    todo = list(roots)
    seen = set(todo)
    while todo:
        node = todo.pop()
        names, has_attributes = _saves(type(node))
        if names or has_attributes:
            named = _named(node)
            for attribute, tensor in _held_by(node, names, has_attributes=has_attributes):
                yield SavedTensor(named, attribute, tensor)
        for to, _ in node.next_functions:
            if to is not None and to not in seen:
                seen.add(to)
                todo.append(to)


_RAW = "_raw_saved_"


@lru_cache(None)
def _saves(kind: type[Any]) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Return what a kind of node saves, and whether the program can set attributes on it.

    The first has each attribute, and what its tensors are called.
    """
    raw = (each for each in dir(kind) if each.startswith(_RAW))
    names = (
        (each, ("saved_" if each == f"{_RAW}tensors" else "") + each.removeprefix(_RAW))
        for each in raw
    )
    return tuple(names), bool(kind.__dictoffset__)


def _held_by(
    node: Any, names: Iterable[tuple[str, str]], *, has_attributes: bool
) -> Iterator[tuple[str, torch.Tensor]]:
    for attribute, name in names:
        try:
            raw = getattr(node, attribute)
            packed = [each.data for each in raw] if isinstance(raw, tuple) else raw.data
        except RuntimeError:  # they were released, as by an earlier backward
            continue
        if packed is not None:
            yield from _tensors_in(name, packed)
    # What a ``torch.autograd.Function`` sets on its context
    for name, value in [*vars(node).items()] if has_attributes else ():
        yield from _tensors_in(name, value)


def _tensors_in(name: str, value: object) -> list[tuple[str, torch.Tensor]]:
    """Return a tensor, or those of a flat list, by name."""
    if isinstance(value, torch.Tensor):
        return [(name, value)]
    if not isinstance(value, tuple | list):
        return []
    return [(f"{name}[{at}]", each) for at, each in enumerate(value)
            if isinstance(each, torch.Tensor)]  # fmt: skip
