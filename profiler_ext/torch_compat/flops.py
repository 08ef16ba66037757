"""Owns access to torch's own count of floating-point operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx

from profiler_ext.torch_compat.fx import target_name
from profiler_ext.torch_compat.names import fx_names

# Which argument of an attention says that it is causal.
_CAUSAL = {
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
    "_scaled_dot_product_flash_attention_backward": 11,
    "_scaled_dot_product_efficient_attention_backward": 11,
    "_scaled_dot_product_cudnn_attention_backward": 14,
}


def formula_of(node: torch.fx.Node) -> Callable[..., Any] | None:
    """Return what counts a node's operations, ``None`` where torch has no formula for it.

    Source: ``torch/utils/flop_counter.py``, ``flop_registry``; in a torch that has none, nothing
    is counted by it, and the estimates are those of elements.
    """
    packet = fx_names.OVERLOADPACKET.maybe(node.target)
    if packet is None or not fx_names.FLOP_REGISTRY.is_available():
        return None
    formula: Callable[..., Any] | None = fx_names.FLOP_REGISTRY.get().get(packet)
    return formula


def is_causal(node: torch.fx.Node) -> bool:
    """Tell whether a node is an attention in which a row sees no later one.

    Torch's formula counts those too: ``sdpa_flop_count`` of ``torch/utils/flop_counter.py``.
    """
    name = target_name(node.target).removeprefix("aten.").partition(".")[0]
    at = _CAUSAL.get(name)
    if at is None:
        return False
    argument = node.args[at] if len(node.args) > at else node.kwargs.get("is_causal")
    return argument is True
