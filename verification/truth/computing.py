"""What computes in place of compiled code: its graph as it was before Inductor, run eagerly.

So a program that reads numbers goes the way that it goes eagerly, and no kernel need be compiled.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch._inductor import compile_fx


@contextlib.contextmanager
def by_graphs() -> Iterator[None]:
    """Let each graph that Inductor compiles meanwhile be run as it is handed to Inductor."""
    compiling = compile_fx._compile_fx_inner

    @functools.wraps(compiling)
    def compiled(graph: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        given = _with_reshapes(copy.deepcopy(graph))  # Inductor's passes change the graph itself
        artifact = compiling(graph, *args, **kwargs)
        if hasattr(artifact, "current_callable"):
            artifact.current_callable = functools.partial(_run, given)
        return artifact

    with mock.patch.object(compile_fx, "_compile_fx_inner", compiled):
        yield


def _with_reshapes(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Let views be copies where they must: Inductor lays out what a padded product is cut from."""
    for node in graph.graph.nodes:
        if node.target is torch.ops.aten.view.default:
            node.target = torch.ops.aten.reshape.default
    graph.recompile()
    return graph


def _run(graph: torch.fx.GraphModule, values: Sequence[Any]) -> Any:
    with torch.no_grad():
        return graph(*values)
