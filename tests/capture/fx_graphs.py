"""The FX graphs that tests make by hand: nodes with fake values, tags and stacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

aten = torch.ops.aten


class Graph:
    """A graph under construction; ``call`` appends a node and returns it."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()

    def given(self, name: str, *size: int, dtype: torch.dtype = torch.float32) -> torch.fx.Node:
        """Append an input."""
        node = self.graph.placeholder(name)
        node.meta["val"] = torch.empty(size, dtype=dtype, device="meta")
        return node

    def call(
        self,
        target: Any,
        args: Sequence[Any],
        size: Sequence[int] = (4, 8),
        name: str | None = None,
        **meta: Any,
    ) -> torch.fx.Node:
        """Append a call."""
        node = self.graph.call_function(target, tuple(args))
        if name is not None:
            node.name = name
        node.meta["val"] = torch.empty(tuple(size), device="meta")
        node.meta.update(meta)
        return node

    def module(self, *outputs: torch.fx.Node) -> torch.fx.GraphModule:
        """Close the graph."""
        self.graph.output(tuple(outputs))
        return torch.fx.GraphModule(torch.nn.Module(), self.graph)


def frame_text(file: str, line: int, function: str, code: str) -> str:
    """Return one frame as torch writes it."""
    return f'  File "{file}", line {line}, in {function}\n    {code}\n'
