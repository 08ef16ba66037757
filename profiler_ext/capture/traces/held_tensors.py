"""Owns under which path a model holds a tensor that Dynamo's graph takes as an input."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch.fx

from profiler_ext.capture.traces.module_paths import (
    join_path,
    dotted,
    held_under,
    name_of_root,
    relative,
    is_within,
)
from profiler_ext.records import ModuleFrame
from profiler_ext.torch_compat import inputs, modules

_TENSOR = re.compile(r"(?P<holder>.+)\._(?:parameters|buffers)\['(?P<name>[^']+)'\]")


def held_tensors(
    gm: torch.fx.GraphModule,
    roots: Mapping[str, torch.nn.Module],
    own: ModuleFrame | None = None,
) -> dict[str, str]:
    """Return the path of each tensor that the user's modules hold, as nodes' modules have theirs.

    Args:
        gm: Dynamo's graph.
        roots: variables that hold a module, ``L['self']``, with it.
        own: the module whose own method was compiled.

    Returns:
        By the name of each input's source, ``L['self']._modules['a']._parameters['b']``, its path
        ``a.b``, without the names that torch's wrappers add.
    """
    sources = filter(None, map(inputs.source_name, inputs.all_inputs(gm)))
    paths = ((source, _path(source, roots, own)) for source in sources)
    return {source: path for source, path in paths if path is not None}


def _path(source: str, roots: Mapping[str, torch.nn.Module], own: ModuleFrame | None) -> str | None:
    if (match := _TENSOR.fullmatch(source)) is None:
        return None
    holder = dotted(match["holder"])
    root = next((root for root in roots if is_within(holder, root)), None)
    if root is None:
        return None
    names = _names(relative(holder, root), roots[root])
    model = name_of_root(root, tuple(roots), own)
    return None if names is None else join_path(model, ".".join((*names, match["name"])))


def _names(path: str, module: torch.nn.Module) -> list[str] | None:
    """Return the names on a path without those of wrappers; ``None`` of one that is not there."""
    names = []
    for name in filter(None, path.split(".")):
        held = dict(modules.held_modules(module)).get(name)
        if held is None:
            return None
        if name != held_under(module):
            names.append(name)
        module = held
    return names
