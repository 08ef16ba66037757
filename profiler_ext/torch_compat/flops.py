"""Owns access to torch's own count of floating-point operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx

from profiler_ext.torch_compat.names import fx_names


def formula_of(node: torch.fx.Node) -> Callable[..., Any] | None:
    """Return what counts a node's operations, ``None`` where torch has no formula for it.

    Source: ``torch/utils/flop_counter.py``, ``flop_registry``; in a torch that has none, nothing
    is counted by it, and the estimates are those of elements.
    """
    packet = fx_names.OVERLOADPACKET.maybe(node.target)
    if packet is None or not fx_names.FLOP_REGISTRY.is_there():
        return None
    formula: Callable[..., Any] | None = fx_names.FLOP_REGISTRY.get().get(packet)
    return formula
