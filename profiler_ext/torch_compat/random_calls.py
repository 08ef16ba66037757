"""Owns which FX nodes draw random numbers, and for which nodes one call draws them."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.fx

from profiler_ext.torch_compat.fx import target_name
from profiler_ext.torch_compat.names import fx_names

_SEEDS, _LOOKUP = "prims.inductor_seeds.default", "prims.inductor_lookup_seed.default"


def is_random(node: torch.fx.Node) -> bool:
    """Tell whether a node draws random numbers."""
    return fx_names.OP_OVERLOAD.is_type_of(node.target) and _is_random(node.target)


@functools.lru_cache(maxsize=1024)
def _is_random(op: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in fx_names.TAGS.of(op)


def draws(node: torch.fx.Node) -> bool:
    """Tell whether random numbers are drawn for a node; attention without dropout has none."""
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

    Source: ``torch/_inductor/fx_passes/replace_random.py``, ``fuse_seed_creation_pass``; the
    call that draws keeps the metadata of the last one only.
    """
    if target_name(node.target) != _SEEDS:
        return (node,)
    return tuple(user for user in node.users if target_name(user.target) == _LOOKUP) or (node,)
