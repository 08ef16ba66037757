"""Owns which forward op an event of autograd's engine differentiates, as far as the trace tells."""

from __future__ import annotations

from functools import partial

import numpy as np

from profiler_ext.attribution.calls.enclosing import EnclosingRanges
from profiler_ext.attribution.trace.forward_links import ForwardLinks
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, Rows, take
from profiler_ext.kineto import classify, names
from profiler_ext.kineto.forward_flows import forward_flows
from profiler_ext.records import Ints, Trace


class ForwardOps:
    """Knows the forward op of each event of the engine.

    Attributes:
        links: the forward events by autograd's numbers.
    """

    def __init__(self, enclosing: EnclosingRanges, trace: Trace, op: Rows) -> None:
        """Index what made an autograd node.

        Args:
            enclosing: what stands around each event on its thread.
            trace: the trace, whose arrows are read where numbers do not tell a thread.
            op: for each event the outermost op around it, or ``NO_ROW``.
        """
        self._enclosing, self._trace, self._op = enclosing, trace, op
        self.links = self._forward_links()
        self._known: dict[int, str | None] = {}

    def of_engine(self, engine: int) -> str | None:
        """Return the forward op that a backward differentiates.

        What runs eagerly in the backward of a compiled forward is of many ops: none is told. A
        function of the program's own is an op of its class's name.

        Args:
            engine: row of the engine's event.
        """
        if engine not in self._known:
            self._known[engine] = self._forward_op(self.links.forward_of(engine))
        return self._known[engine]

    def _forward_op(self, row: int | None) -> str | None:
        name = self._enclosing.events.name
        if row is None or classify.is_compiled_forward(name[row]):
            return None
        return name[row] if self._op[row] == NO_ROW else name[int(self._op[row])]

    def _forward_links(self) -> ForwardLinks:
        """Index what made an autograd node: ops, compiled forwards, the program's functions.

        The engine's own events have the number of the node that they evaluate, unless a hook runs
        before it. Source: ``torch/csrc/profiler/collection.cpp``, ``set_autograd_evaluate``.
        """
        enclosing, events = self._enclosing, self._enclosing.events
        rows, nodes = np.arange(len(events), dtype=np.int32), self._nodes()
        is_engine: Flags = enclosing.engine == rows
        is_engine[nodes] = True
        backward = np.unique(enclosing.engine)
        return ForwardLinks(
            events,
            np.flatnonzero(enclosing.is_op & ~is_engine),
            backward[backward != NO_ROW],
            dict(zip(enclosing.nesting.parent[nodes].tolist(), nodes.tolist(), strict=True)),
            partial(forward_flows, self._trace),
        )

    def _nodes(self) -> Ints:
        """Return the nodes' own events, each directly within the engine's."""
        enclosing, names_ = self._enclosing, self._enclosing.events.name
        code_of = {text: code for code, text in enumerate(names_.strings)}
        evaluated = map(names.evaluated_function, names_.strings)
        codes = np.array(
            [NO_ROW if text is None else code_of.get(text, NO_ROW) for text in evaluated], np.int64
        )
        around = take(enclosing.engine, enclosing.nesting.parent, NO_ROW)
        is_direct = (around == enclosing.nesting.parent) & (around != NO_ROW)
        rows = np.flatnonzero(is_direct)
        own: Ints = rows[codes[names_.codes[around[rows]]] == names_.codes[rows]]
        return own
