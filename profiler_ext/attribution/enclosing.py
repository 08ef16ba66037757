"""The ranges that enclose each CPU event: graph calls, compiled frames, engine, optimizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.trace.forward_links import ForwardLinks
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, Rows, take
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.kineto import classify, names
from profiler_ext.records import analysis, gaps, lineage
from profiler_ext.records.events import Events, Ints, flag_rows

# What a graph was called on: a module, or the modules that it is a part of
Called = lineage.ModuleFrame | lineage.PartModules


@dataclass(frozen=True, slots=True)
class CallContext:
    """Where a compiled graph was called."""

    in_optimizer: bool = False  # inside an optimizer's step
    in_engine: bool = False  # inside autograd's engine, so in a backward pass
    is_forward: bool = False  # called as a forward that autograd knows
    is_backward: bool = False  # called as the backward of a compiled forward
    # The module that was compiled by itself and called, or the modules that a part of a graph was
    # called on, if known
    module: Called | None = None
    # For calls that a graph of compiled autograd copies, the module that the forward was called on;
    # ``None`` where the trace has several such forwards
    copied: frozenset[tuple[str, Called | None]] = frozenset()
    # The place of the op in another graph's call that runs it, if one does
    caller: analysis.Place | None = None
    # The program's frames that call it, where its nodes leave lines or modules open
    called_from: tuple[lineage.Frame, ...] = ()
    called_in: lineage.ModuleFrame | None = None  # the innermost module whose call is active then


class EnclosingRanges:
    """The ranges around each CPU event.

    Each column has one row for each event: the innermost range of that kind around it, or
    ``NO_ROW``.
    """

    def __init__(
        self, events: Events, nesting: Nesting, modules: Mapping[int, Called] | None = None
    ) -> None:
        # modules: what was compiled by itself and called, by the number in the mark

        def nearest(flags: Flags) -> Rows:
            return nesting.nearest(flags & is_cpu)

        is_cpu = nesting.depth != NO_ROW
        self.events, self.nesting = events, nesting
        self.is_marker = flag_rows(events.name, names.is_graph_marker) & is_cpu
        is_mark = flag_rows(events.name, classify.is_call_mark)
        is_around_ops = self.is_marker | is_mark | flag_rows(events.name, names.is_around_ops)
        self.is_op = flag_rows(events.category, classify.is_op) & ~is_around_ops
        self.marker = nearest(self.is_marker)
        self.operator = nesting.outermost(self.is_op, within=self.is_marker)
        self.frame = nearest(flag_rows(events.name, classify.is_compiled_frame))
        self.forward = nearest(flag_rows(events.name, classify.is_compiled_forward))
        self.backward = nearest(flag_rows(events.name, classify.is_compiled_backward))
        self.engine = nearest(flag_rows(events.name, classify.is_engine))
        self.compiled_range = nearest(flag_rows(events.name, _is_compiled))
        self.optimizer = nearest(flag_rows(events.name, classify.is_optimizer))
        self._compiling = nearest(flag_rows(events.name, classify.is_compiling))
        self._benchmarking = flag_rows(events.name, classify.is_benchmarking)
        self.compiles = bool((self._compiling != NO_ROW).any())
        self._modules = modules or {}
        self._contexts: dict[CallContext, CallContext] = {}
        self._call = nearest(is_mark)
        self._called = nesting.outermost(self.is_marker, within=is_mark)
        self._copies = nearest(flag_rows(events.name, classify.is_copies_mark))
        self._mark = nearest(flag_rows(events.name, classify.is_module_mark))
        marks = np.flatnonzero(self._mark == np.arange(len(self._mark), dtype=np.int32))
        self._marked_within = dict(zip(self.forward[marks].tolist(), marks.tolist(), strict=True))

    def is_trial(self, rows: Ints) -> Flags:
        """Tell whether a row is compile work rather than a run of a graph called within."""
        compiling = take(self._compiling, rows, NO_ROW)
        marker = take(self.marker, rows, NO_ROW)
        depth = self.nesting.depth
        return take(depth, compiling, NO_ROW) > take(depth, marker, NO_ROW)

    def caller(self, marker: int) -> tuple[int, int] | None:
        """Return the marker of the enclosing call, and the operator there."""
        parent = int(self.nesting.parent[marker])
        outer = NO_ROW if parent == NO_ROW else int(self.marker[parent])
        return None if outer == NO_ROW else (outer, int(self.operator[parent]))

    def own(self, enclosing: Rows, row: int) -> int:
        """Return what is around a row, unless that is around another graph's call too."""
        # enclosing: for each row the row around it, or ``NO_ROW``
        nearest, marker = int(enclosing[row]), int(self.marker[row])
        caller = None if marker == NO_ROW else self.caller(marker)
        depth = self.nesting.depth
        is_outer = caller is not None and nearest != NO_ROW and depth[nearest] < depth[caller[0]]
        return NO_ROW if is_outer else nearest

    def compile_work(self, row: int) -> gaps.GapReason:
        """Return what a row of compile work is: a trial that Inductor times, or any other."""
        is_timed = self._benchmarking[self._compiling[row]]
        return gaps.GapReason.AUTOTUNING if is_timed else gaps.GapReason.COMPILING

    def context(self, marker: int, forward: int | None, links: ForwardLinks) -> CallContext:
        """Return where a graph was called."""
        # forward: the row at which its forward ran, its own for a forward
        made = CallContext(
            in_optimizer=bool(self.optimizer[marker] != NO_ROW),
            in_engine=bool(self.engine[marker] != NO_ROW),
            is_forward=self.own(self.forward, marker) != NO_ROW,
            is_backward=self.own(self.backward, marker) != NO_ROW,
            module=self._module(forward),
            copied=frozenset(self._copied(marker, links)),
        )
        return self._contexts.setdefault(made, made)  # one object is compared at once

    def graph(self, marker: int) -> int | None:
        """Return the index of the graph in the mark right around a call."""
        mark = int(self._call[marker])
        is_own = self._called[marker] == marker  # not that of a call which this one lies within
        return names.marked_graph(self.events.name[mark]) if is_own and mark != NO_ROW else None

    def _copied(self, marker: int, links: ForwardLinks) -> Iterator[tuple[str, Called | None]]:
        """List what the mark around a graph of compiled autograd says it copies."""
        mark = int(self._copies[marker])
        calls = () if mark == NO_ROW else names.marked_copies(self.events.name[mark])
        uses = Counter(names.copied_compile(call) for call, _ in calls)
        for call, number in calls:
            forward = links.numbered(number)
            module = self._module(forward)
            is_open = forward is None and uses[names.copied_compile(call)] > 1
            if module is not None or is_open:
                yield call, module

    def _module(self, row: int | None) -> Called | None:
        """Return the module in the mark around a graph's call, or within the forward at a row."""
        if row is None:
            return None
        mark = int(self._mark[row])
        if mark == NO_ROW and self.forward[row] != NO_ROW:
            mark = self._marked_within.get(row, NO_ROW)
        number = None if mark == NO_ROW else names.marked_module(self.events.name[mark])
        return None if number is None else self._modules.get(number)


def _is_compiled(name: str) -> bool:
    is_compiled = classify.is_compiled_forward(name) or classify.is_compiled_backward(name)
    return is_compiled or classify.is_compiled_frame(name)
