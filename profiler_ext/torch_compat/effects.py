"""Owns what tells a call that writes to its inputs from others, and the functional form of it.

Source: ``torch/_higher_order_ops/auto_functionalize.py`` and ``triton_kernel_wrap.py``.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch.fx

from profiler_ext.torch_compat.fx import target_name
from profiler_ext.torch_compat.names import fx_names


def functional_call(node: torch.fx.Node) -> Hashable:
    """Return what a functional form stands for; ``None`` if a node is no such form."""
    name = target_name(node.target)
    if name.startswith(fx_names.FUNCTIONALIZED.text):
        return target_name(node.args[0])
    return _triton_call(node) if name == fx_names.TRITON_FUNCTIONAL.text else None


def writing_call(node: torch.fx.Node) -> Hashable:
    """Return the same of a call that writes to its inputs; ``None`` if it writes nothing."""
    name = target_name(node.target)
    if name == fx_names.TRITON_WRITES.text:
        return _triton_call(node)
    schema = fx_names.SCHEMA.maybe(node.target)
    return name if schema is not None and fx_names.IS_MUTABLE.of(schema) else None


def _triton_call(node: torch.fx.Node) -> Hashable:
    return tuple(key.of(node.kwargs) for key in (fx_names.TRITON_KERNEL, fx_names.TRITON_CONSTANTS))
