"""Owns what a node's value is made of: its inputs, and for one output of a list op its own part."""

from __future__ import annotations

from typing import Any

import torch.fx

from profiler_ext.torch_compat import fx


def value_inputs(node: torch.fx.Node) -> tuple[torch.fx.Node, ...]:
    """Return the nodes that a node's value is computed from.

    A foreach op computes each of its outputs from one element of each list that it is given,
    so such an output (a ``getitem``) is made of those, and the op itself adds nothing.
    """
    if node.op != "call_function" or _is_foreach(node):
        return ()
    source = node.args[0] if fx.target_name(node.target) == "getitem" else None
    if isinstance(source, torch.fx.Node) and _is_foreach(source):
        return (source, *_part(source, node.args[1]))
    return tuple(node.all_input_nodes)


def _is_foreach(node: torch.fx.Node) -> bool:
    return fx.target_name(node.target).startswith("aten._foreach_")


def _part(foreach: torch.fx.Node, index: Any) -> tuple[torch.fx.Node, ...]:
    """What one output is made of: its place in each list, and all that is not a list."""
    given = (*foreach.args, *foreach.kwargs.values())
    picked = (a[index] if isinstance(a, list | tuple) else a for a in given)
    return tuple(value for value in picked if isinstance(value, torch.fx.Node))
