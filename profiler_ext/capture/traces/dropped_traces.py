"""Owns the traces of regions that torch made for a call and dropped, as it had an equal graph.

Such a trace has the lines of the call: another function that is passed, another module. The call's
node yields the very fake tensors that its trace made, whatever graph it then runs.
Source: ``torch/_dynamo/variables/invoke_subgraph.py``, ``install_subgraph_in_output_graph``.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch.fx

from profiler_ext.torch_compat import fx


class DroppedTraces:
    """The traces that were dropped, by the graph that was kept."""

    def __init__(self) -> None:
        """Start with none."""
        self._of: WeakKeyDictionary[torch.fx.GraphModule, list[torch.fx.GraphModule]] = (
            WeakKeyDictionary()
        )

    def keep(self, kept: torch.fx.GraphModule, dropped: torch.fx.GraphModule) -> None:
        """Keep a trace.

        Args:
            kept: the graph that torch has in its place.
            dropped: the trace.
        """
        self._of.setdefault(kept, []).append(dropped)

    def forget(self, gm: torch.fx.GraphModule) -> None:
        """Let go of the traces for a graph and those nested in it.

        Args:
            gm: the graph.
        """
        for kept in fx.graph_modules(gm):
            self._of.pop(kept, None)

    def of(self, kept: torch.fx.GraphModule) -> Sequence[torch.fx.GraphModule]:
        """Return the traces that were dropped for a graph.

        Args:
            kept: the graph.
        """
        return self._of.get(kept, ())

    def of_call(
        self, call: torch.fx.Node, kept: torch.fx.GraphModule
    ) -> torch.fx.GraphModule | None:
        """Return the trace of a call.

        Args:
            call: the node that calls a region.
            kept: the graph that it calls.
        """
        traces = self.of(kept)
        yielded = _values([call]) if traces else set()
        return next((each for each in traces if yielded and yielded <= _yields(each)), None)


def _yields(trace: torch.fx.GraphModule) -> set[int]:
    """Return what a trace puts out; torch 2.11 puts out more than a call of it yields."""
    output = next(node for node in reversed(trace.graph.nodes) if node.op == "output")
    return _values(output.all_input_nodes)


def _values(nodes: Sequence[torch.fx.Node]) -> set[int]:
    """Return which tensors nodes yield."""
    return {id(value) for node in nodes for value in fx.tensors(node.meta)}
