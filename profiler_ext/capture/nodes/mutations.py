"""Owns the ``copy_`` nodes that AOTAutograd appends for mutated inputs: who mutated, and where.

Such a node has no stack, and its number means nothing. What it copies is the value of the op
that mutated, but only until the joint graph's passes: they take ``buffer.copy_(x)`` for a
no-op, and then ``x`` seems to be what mutated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch.fx

from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.compiled_autograd import COPIED_FROM
from profiler_ext.torch_compat.names import fx_names

Mutations = Mapping[str, fx.Meta]

_SOURCE = (
    fx_names.STACK_TRACE,
    fx_names.NN_MODULE_STACK,
    fx_names.FWD_NN_MODULE_STACK,
    fx_names.SOURCE_FN_STACK,
    fx_names.FWD_SOURCE_FN_STACK,
    fx_names.SEQ_NR,
    fx_names.CUSTOM,
)


def _own_meta(node: torch.fx.Node) -> fx.Meta:
    return node.meta


def mutations(
    gm: torch.fx.GraphModule, found: Callable[[torch.fx.Node], fx.Meta] = _own_meta
) -> Mutations:
    """Return where each epilogue copy's value was made.

    Args:
        gm: a joint graph, or one that asks for no gradient, before its passes.
        found: a node's metadata, with what an earlier pass lost.

    Returns:
        The names of the copies, each with what the mutating node says of its source.
    """
    copies = (n for n in gm.graph.nodes if fx.is_input_copy(n))
    return {copy.name: _source(copy.args[1], found) for copy in copies}


def with_source(node: torch.fx.Node, meta: fx.Meta, found: Mutations) -> fx.Meta:
    """Return a node's metadata, an epilogue copy's source taken from what mutated."""
    return {**meta, **found.get(node.name, {})} if fx.is_input_copy(node) else meta


def _source(value: torch.fx.Node, found: Callable[[torch.fx.Node], fx.Meta]) -> fx.Meta:
    """Where a value was made; what functionalization inserted says it of its input."""
    while not _is_known(found(value)) and value.all_input_nodes:
        value = value.all_input_nodes[0]
    meta = found(value)
    keys = (*(key.text for key in _SOURCE), COPIED_FROM)
    return {key: meta[key] for key in keys if key in meta}


def _is_known(meta: fx.Meta) -> bool:
    return bool(fx_names.STACK_TRACE.of(meta)) or COPIED_FROM in meta
