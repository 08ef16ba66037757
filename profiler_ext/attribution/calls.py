"""Owns the calls of compiled graphs: each marker with its units, and where it was called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.columns import NO_ROW, Flags, ask, take
from profiler_ext.attribution.launches import Enqueued, work_name
from profiler_ext.attribution.matching import Unit
from profiler_ext.attribution.nesting import Nesting
from profiler_ext.attribution.phases import CallContext
from profiler_ext.attribution.sequence import ForwardLinks
from profiler_ext.attribution.units import units_of
from profiler_ext.kineto import classify, names
from profiler_ext.records import Events, GapReason, Ints, ModuleFrame


@dataclass(frozen=True, slots=True)
class GraphCall:
    """One call of a compiled graph, as the trace shows it.

    Attributes:
        marker: row of the marker.
        key: cache key that the marker carries.
        compile_id: id of the compiled region, or of the forward's region; ``None`` unknown.
        context: where it was called.
        units: what it ran, in enqueue order.
        launches: for each unit its launches, in enqueue order.
        ran: for each unit the names of the device events of its launches.
        trials: launches of compile work inside the call, each with what it was.
        place: which call it is within one run of a compiled function, and of how many.
        graph: the index of its graph that the process noted, ``None`` where it noted none.
        run: the run of a compiled frame that it belongs to, a backward to that of its forward.
        rows: the row of the operator that each unit is, ``NO_ROW`` of a launch without one.
        caller: the marker of the call that it lies within and the operator there, if it does.
    """

    marker: int
    key: str | None
    compile_id: str | None
    context: CallContext
    units: tuple[Unit, ...]
    launches: tuple[tuple[int, ...], ...]
    trials: tuple[tuple[int, GapReason], ...]
    place: tuple[int, int] = (0, 1)
    graph: int | None = None
    run: int | None = None
    rows: tuple[int, ...] = ()
    caller: tuple[int, int] | None = None
    ran: tuple[tuple[str, ...], ...] = ()

    @property
    def is_replay(self) -> bool:
        """Whether a CUDA graph was replayed in this call."""
        return any(unit.replayed for unit in self.units)


class Surroundings:
    """Answers, for any CPU event of a trace, what it stands in."""

    def __init__(
        self, events: Events, nesting: Nesting, modules: Mapping[int, ModuleFrame] | None = None
    ) -> None:
        """Look at a trace.

        Args:
            events: its events.
            nesting: their nesting.
            modules: modules that were compiled by themselves, by the number in their mark.
        """

        def nearest(question: Flags) -> Ints:
            return nesting.nearest(question & is_cpu)

        is_cpu = nesting.depth != NO_ROW
        self.events, self.nesting = events, nesting
        self.is_marker = ask(events.name, names.is_graph_marker) & is_cpu
        is_mark = ask(events.name, classify.is_call_mark)
        is_around_ops = self.is_marker | is_mark | ask(events.name, names.is_graph_recording)
        self.is_op = ask(events.category, classify.is_op) & ~is_around_ops
        self.marker = nearest(self.is_marker)
        self.operator = nesting.outermost(self.is_op, within=self.is_marker)
        self.region = nearest(ask(events.name, classify.is_region))
        self.forward = nearest(ask(events.name, classify.is_compiled_forward))
        self.backward = nearest(ask(events.name, classify.is_compiled_backward))
        self.engine = nearest(ask(events.name, classify.is_engine))
        runs = (self.region, self.forward, self.backward)
        self.run = nearest(np.logical_or.reduce([at == np.arange(len(at)) for at in runs]))
        self.optimizer = nearest(ask(events.name, classify.is_optimizer))
        self._compiling = nearest(ask(events.name, classify.is_compiling))
        self._benchmarking = ask(events.name, classify.is_benchmarking)
        self.compiles = bool((self._compiling != NO_ROW).any())
        self._modules = modules or {}
        self._contexts: dict[CallContext, CallContext] = {}
        self._call = nearest(is_mark)
        self._called = nesting.outermost(self.is_marker, within=is_mark)
        self._copies = nearest(ask(events.name, classify.is_copies_mark))
        self._mark = nearest(ask(events.name, classify.is_module_mark))
        marks = np.flatnonzero(self._mark == np.arange(len(self._mark)))
        self._marked_within = dict(zip(self.forward[marks].tolist(), marks.tolist(), strict=True))

    def is_trial(self, rows: Ints) -> Flags:
        """Tell whether a row is compile work rather than a run of a graph called within."""
        compiling = take(self._compiling, rows, NO_ROW)
        marker = take(self.marker, rows, NO_ROW)
        depth = self.nesting.depth
        inner: Flags = take(depth, compiling, NO_ROW) > take(depth, marker, NO_ROW)
        return inner

    def caller(self, marker: int) -> tuple[int, int] | None:
        """Return the marker of the call that a call lies within, and the operator there."""
        parent = int(self.nesting.parent[marker])
        outer = NO_ROW if parent == NO_ROW else int(self.marker[parent])
        return None if outer == NO_ROW else (outer, int(self.operator[parent]))

    def own(self, around: Ints, row: int) -> int:
        """Return what stands around a row, unless that stands around another graph's call too."""
        found, marker = int(around[row]), int(self.marker[row])
        caller = None if marker == NO_ROW else self.caller(marker)
        depth = self.nesting.depth
        is_outer = caller is not None and found != NO_ROW and depth[found] < depth[caller[0]]
        return NO_ROW if is_outer else found

    def compile_work(self, row: int) -> GapReason:
        """Return what a row of compile work is: a trial that Inductor times, or any other."""
        is_timed = self._benchmarking[self._compiling[row]]
        return GapReason.AUTOTUNING if is_timed else GapReason.COMPILING

    def context(self, marker: int, forward: int | None, links: ForwardLinks) -> CallContext:
        """Return where a graph was called.

        Args:
            marker: the call's row.
            forward: the row at which its forward ran, its own for a forward.
            links: the forwards by their numbers.
        """
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

    def _copied(self, marker: int, links: ForwardLinks) -> Iterator[tuple[str, ModuleFrame | None]]:
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

    def _module(self, row: int | None) -> ModuleFrame | None:
        """Return the module in the mark around a graph's call, or within the forward at a row."""
        if row is None:
            return None
        mark = int(self._mark[row])
        if mark == NO_ROW and self.forward[row] != NO_ROW:
            mark = self._marked_within.get(row, NO_ROW)
        number = None if mark == NO_ROW else names.marked_module(self.events.name[mark])
        return None if number is None else self._modules.get(number)


def find_calls(around: Surroundings, enqueued: Enqueued) -> tuple[GraphCall, ...]:
    """Collect every call of a compiled graph and what it ran."""
    unit_row = _unit_rows(around, enqueued)
    inside = np.flatnonzero(take(around.marker, enqueued.cpu, NO_ROW) != NO_ROW)
    members = _by_marker(take(around.marker, enqueued.cpu[inside], NO_ROW), inside)
    called = _called_rows(around)
    links, places = _forward_links(around), _places(around)
    return tuple(
        _call(around, enqueued, unit_row, members, called, links, places, int(marker))
        for marker in np.flatnonzero(around.is_marker)
    )


def _unit_rows(around: Surroundings, enqueued: Enqueued) -> Ints:
    """Return for each launch the operator called by the marker, or the runtime call itself."""
    by_operator = take(around.operator, enqueued.cpu, NO_ROW)
    return np.where(by_operator == NO_ROW, enqueued.call, by_operator)


def _called_rows(around: Surroundings) -> dict[int, Ints]:
    """Return for each marker the operators that it called itself, trials left out."""
    operator = around.operator
    rows = np.flatnonzero((operator == np.arange(len(operator))) & (around.marker != NO_ROW))
    rows = rows[~around.is_trial(rows)]
    return _by_marker(around.marker[rows], rows)


def _by_marker(marker: Ints, values: Ints) -> dict[int, Ints]:
    order = np.argsort(marker, kind="stable")
    distinct, first = np.unique(marker[order], return_index=True)
    return dict(zip(distinct.tolist(), np.split(values[order], first[1:]), strict=False))


def _forward_links(around: Surroundings) -> ForwardLinks:
    def rows(question: Callable[[str], bool]) -> Ints:
        return np.flatnonzero(ask(around.events.name, question) & around.is_op)

    forward, backward = rows(classify.is_compiled_forward), rows(classify.is_compiled_backward)
    return ForwardLinks(around.events, forward, backward)


def _forward_row(around: Surroundings, links: ForwardLinks, marker: int) -> int | None:
    """Return the row at which the forward of a call ran: its own, or by sequence number."""
    backward = around.own(around.backward, marker)
    return marker if backward == NO_ROW else links.forward_of(backward)


def _region(around: Surroundings, forward: int | None) -> int | None:
    """Return the row of a call's region; a backward's is that of its forward."""
    region = NO_ROW if forward is None else around.own(around.region, forward)
    return None if region == NO_ROW else region


def _call(
    around: Surroundings,
    enqueued: Enqueued,
    unit_row: Ints,
    members: dict[int, Ints],
    called: dict[int, Ints],
    links: ForwardLinks,
    places: dict[int, tuple[int, int]],
    marker: int,
) -> GraphCall:
    launches = members.get(marker, np.empty(0, dtype=np.int64))
    trial = around.is_trial(enqueued.cpu[launches])
    forward = _forward_row(around, links, marker)
    run = _region(around, forward)
    units = units_of(around.events, enqueued, unit_row, launches[~trial], called.get(marker))
    return GraphCall(
        marker=marker,
        key=names.graph_key(around.events.name[marker]),
        compile_id=None if run is None else names.region_id(around.events.name[run]),
        context=around.context(marker, forward, links),
        units=tuple(unit for unit, _, _ in units),
        launches=tuple(own for _, own, _ in units),
        trials=tuple(
            (launch, around.compile_work(int(enqueued.cpu[launch])))
            for launch in launches[trial].tolist()
        ),
        place=places[marker],
        graph=around.graph(marker),
        run=run,
        rows=tuple(row for _, _, row in units),
        caller=around.caller(marker),
        ran=tuple(_ran(around.events, enqueued, own) for _, own, _ in units),
    )


def _ran(events: Events, enqueued: Enqueued, launches: Sequence[int]) -> tuple[str, ...]:
    return tuple(work_name(events, int(enqueued.event[at])) for at in launches)


def _places(around: Surroundings) -> dict[int, tuple[int, int]]:
    """Return for each marker which call it is within one run of a compiled function."""
    markers = np.flatnonzero(around.is_marker)
    markers = markers[np.argsort(around.events.start_ns[markers], kind="stable")]
    runs = _by_marker(around.run[markers], markers).values()
    return {int(row): (at, len(own)) for own in runs for at, row in enumerate(own)}
