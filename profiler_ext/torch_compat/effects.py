"""Owns what tells a call that writes to its inputs from others, and the functional form of it.

Source: ``torch/_higher_order_ops/auto_functionalize.py`` and ``triton_kernel_wrap.py``.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch.fx

from profiler_ext.torch_compat.fx import target_name


def functional_call(node: torch.fx.Node) -> Hashable:
    """Return what a functional form stands for; ``None`` if a node is no such form."""
    name = target_name(node.target)
    if name.startswith("auto_functionalized"):
        return target_name(node.args[0])
    return _triton_call(node) if name == "triton_kernel_wrapper_functional" else None


def writing_call(node: torch.fx.Node) -> Hashable:
    """Return the same of a call that writes to its inputs; ``None`` if it writes nothing."""
    name = target_name(node.target)
    if name == "triton_kernel_wrapper_mutation":
        return _triton_call(node)
    schema = getattr(node.target, "_schema", None)
    return name if schema is not None and schema.is_mutable else None


def _triton_call(node: torch.fx.Node) -> Hashable:
    return tuple(node.kwargs.get(key) for key in ("kernel_idx", "constant_args_idx"))
