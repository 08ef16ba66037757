"""What the operator of an FX node does: writes to inputs, draws random numbers, counts operations.

Source: ``torch/_higher_order_ops/auto_functionalize.py`` and ``triton_kernel_wrap.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import torch
import torch.fx

from profiler_ext.torch_compat.fx import target_name
from profiler_ext.torch_compat.names import fx_names


class Call(NamedTuple):
    """What a node called at one time; passes replace arguments, and change none in place."""

    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def call_of(node: torch.fx.Node) -> Call:
    """Return what a node calls now."""
    return Call(node.target, node.args, node.kwargs)


def call_text(call: Call) -> str:
    """Return what is called with which constants, without the nodes."""
    given = torch.fx.map_arg((call.args, call.kwargs), lambda _: None)
    return f"{target_name(call.target)} {given}"


def functional_call(call: Call) -> Hashable:
    """Return what a functional form stands for; ``None`` for any other call."""
    name = target_name(call.target)
    if name.startswith(fx_names.FUNCTIONALIZED.text):
        return target_name(call.args[0])
    return _triton_call(call) if name == fx_names.TRITON_FUNCTIONAL.text else None


def writing_call(call: Call | torch.fx.Node) -> Hashable:
    """Return the same for a call that writes to its inputs; ``None`` if it writes nothing."""
    name = target_name(call.target)
    if name == fx_names.TRITON_WRITES.text:
        return _triton_call(call)
    schema = fx_names.SCHEMA.maybe(call.target)
    return name if schema is not None and fx_names.IS_MUTABLE.of(schema) else None


def _triton_call(call: Call | torch.fx.Node) -> Hashable:
    return tuple(key.of(call.kwargs) for key in (fx_names.TRITON_KERNEL, fx_names.TRITON_CONSTANTS))


# The index of ``is_causal`` in each attention.
_CAUSAL = {
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
    "_scaled_dot_product_flash_attention_backward": 11,
    "_scaled_dot_product_efficient_attention_backward": 11,
    "_scaled_dot_product_cudnn_attention_backward": 14,
}


def formula_of(node: torch.fx.Node) -> Callable[..., Any] | None:
    """Return torch's formula for a node's operations, if it has one.

    Source: ``torch/utils/flop_counter.py``, ``flop_registry``.
    """
    packet = fx_names.OVERLOADPACKET.maybe(node.target)
    if packet is None or not fx_names.FLOP_REGISTRY.is_available():
        return None
    formula: Callable[..., Any] | None = fx_names.FLOP_REGISTRY.get().get(packet)
    return formula


def is_causal(node: torch.fx.Node) -> bool:
    """Tell whether a node is a causal attention.

    Torch's formula ignores that: ``sdpa_flop_count`` of ``torch/utils/flop_counter.py``.
    """
    name = target_name(node.target).removeprefix("aten.").partition(".")[0]
    at = _CAUSAL.get(name)
    if at is None:
        return False
    argument = node.args[at] if len(node.args) > at else node.kwargs.get("is_causal")
    return argument is True


_SEEDS, _LOOKUP = "prims.inductor_seeds.default", "prims.inductor_lookup_seed.default"


def is_random(node: torch.fx.Node) -> bool:
    """Tell whether a node draws random numbers."""
    return fx_names.OP_OVERLOAD.is_type_of(node.target) and _is_random(node.target)


@functools.lru_cache(maxsize=1024)
def _is_random(op: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in fx_names.TAGS.of(op)


def draws(node: torch.fx.Node) -> bool:
    """Tell whether random numbers are drawn for a node; attention without dropout draws none."""
    if target_name(node.target) == _LOOKUP:
        return True
    if not is_random(node) or drawn_for(node) != (node,):
        return False
    schema = fx_names.SCHEMA.maybe(node.target)
    arguments = fx_names.ARGUMENTS.of(schema) if schema is not None else ()
    name, default = fx_names.ARGUMENT_NAME, fx_names.ARGUMENT_DEFAULT
    given: dict[str, Any] = {name.of(each): default.of(each) for each in arguments}
    given.update(zip(given, node.args, strict=False))
    return bool({**given, **node.kwargs}.get("dropout_p", 1.0) != 0.0)


def drawn_for(node: torch.fx.Node) -> tuple[torch.fx.Node, ...]:
    """Return the nodes that a node draws for: one call draws the seeds of all random calls.

    Source: ``torch/_inductor/fx_passes/replace_random.py``, ``fuse_seed_creation_pass``, which
    keeps the metadata of the last one only.
    """
    if target_name(node.target) != _SEEDS:
        return (node,)
    return tuple(user for user in node.users if target_name(user.target) == _LOOKUP) or (node,)
