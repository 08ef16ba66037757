"""Owns what a node calls, and what tells a call that writes to its inputs from others.

Source: ``torch/_higher_order_ops/auto_functionalize.py`` and ``triton_kernel_wrap.py``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import torch.fx

from profiler_ext.torch_compat.fx import target_name
from profiler_ext.torch_compat.names import fx_names


class Call(NamedTuple):
    """What a node called at one time: a pass gives it other arguments, and changes none in place.

    Attributes:
        target: what it called.
        args: what it called that with.
        kwargs: the same by name.
    """

    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def call_of(node: torch.fx.Node) -> Call:
    """Return what a node calls now."""
    return Call(node.target, node.args, node.kwargs)


def call_text(call: Call) -> str:
    """Return what is called with which constants; values of nodes are left open."""
    given = torch.fx.map_arg((call.args, call.kwargs), lambda _: None)
    return f"{target_name(call.target)} {given}"


def functional_call(call: Call) -> Hashable:
    """Return what a functional form stands for; ``None`` if a call is no such form."""
    name = target_name(call.target)
    if name.startswith(fx_names.FUNCTIONALIZED.text):
        return target_name(call.args[0])
    return _triton_call(call) if name == fx_names.TRITON_FUNCTIONAL.text else None


def writing_call(call: Call | torch.fx.Node) -> Hashable:
    """Return the same of a call that writes to its inputs; ``None`` if it writes nothing."""
    name = target_name(call.target)
    if name == fx_names.TRITON_WRITES.text:
        return _triton_call(call)
    schema = fx_names.SCHEMA.maybe(call.target)
    return name if schema is not None and fx_names.IS_MUTABLE.of(schema) else None


def _triton_call(call: Call | torch.fx.Node) -> Hashable:
    return tuple(key.of(call.kwargs) for key in (fx_names.TRITON_KERNEL, fx_names.TRITON_CONSTANTS))
