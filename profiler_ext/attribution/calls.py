"""Owns the calls of compiled graphs: each marker with its units, and where it was called."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.alignment import Unit
from profiler_ext.attribution.columns import NO_ROW, Flags, ask, take
from profiler_ext.attribution.launches import Enqueued
from profiler_ext.attribution.nesting import Nesting
from profiler_ext.attribution.phases import CallContext
from profiler_ext.kineto import classify, names
from profiler_ext.records import Events, Ints


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
        trials: launches of autotuning inside the call.
    """

    marker: int
    key: str | None
    compile_id: str | None
    context: CallContext
    units: tuple[Unit, ...]
    launches: tuple[tuple[int, ...], ...]
    trials: tuple[int, ...]

    @property
    def is_replay(self) -> bool:
        """Whether a CUDA graph was replayed in this call."""
        return any(unit.replayed for unit in self.units)


class Surroundings:
    """Answers, for any CPU event of a trace, what it stands in."""

    def __init__(self, events: Events, nesting: Nesting) -> None:
        def nearest(question: Flags) -> Ints:
            return nesting.nearest(question & is_cpu)

        is_cpu = nesting.depth != NO_ROW
        self.events, self.nesting = events, nesting
        self.is_marker = ask(events.name, names.is_graph_marker) & is_cpu
        self.is_op = ask(events.category, classify.is_op) & ~self.is_marker
        self.marker = nearest(self.is_marker)
        self.region = nearest(ask(events.name, classify.is_region))
        self.forward = nearest(ask(events.name, classify.is_compiled_forward))
        self.backward = nearest(ask(events.name, classify.is_compiled_backward))
        self.engine = nearest(ask(events.name, classify.is_engine))
        self.optimizer = nearest(ask(events.name, classify.is_optimizer))
        self._compiling = nearest(ask(events.name, classify.is_compiling))

    def is_trial(self, rows: Ints) -> Flags:
        """Tell whether a row is compile work rather than a run of a graph called within."""
        compiling = take(self._compiling, rows, NO_ROW)
        marker = take(self.marker, rows, NO_ROW)
        depth = self.nesting.depth
        inner: Flags = take(depth, compiling, NO_ROW) > take(depth, marker, NO_ROW)
        return inner

    def context(self, marker: int) -> CallContext:
        """Return where a graph was called."""
        return CallContext(
            in_optimizer=bool(self.optimizer[marker] != NO_ROW),
            in_engine=bool(self.engine[marker] != NO_ROW),
            is_forward=bool(self.forward[marker] != NO_ROW),
            is_backward=bool(self.backward[marker] != NO_ROW),
        )


def find_calls(around: Surroundings, enqueued: Enqueued) -> tuple[GraphCall, ...]:
    """Collect every call of a compiled graph and what it ran."""
    unit_row = _unit_rows(around, enqueued)
    inside = np.flatnonzero(take(around.marker, enqueued.cpu, NO_ROW) != NO_ROW)
    members = _by_marker(take(around.marker, enqueued.cpu[inside], NO_ROW), inside)
    called = _called_rows(around)
    regions = _forward_regions(around)
    return tuple(
        _call(around, enqueued, unit_row, members, called, regions, int(marker))
        for marker in np.flatnonzero(around.is_marker)
    )


def _unit_rows(around: Surroundings, enqueued: Enqueued) -> Ints:
    """Return for each launch the operator called by the marker, or the runtime call itself."""
    operator = around.nesting.outermost(around.is_op, within=around.is_marker)
    by_operator = take(operator, enqueued.cpu, NO_ROW)
    return np.where(by_operator == NO_ROW, enqueued.call, by_operator)


def _called_rows(around: Surroundings) -> dict[int, Ints]:
    """Return for each marker the operators that it called itself, trials left out."""
    operator = around.nesting.outermost(around.is_op, within=around.is_marker)
    rows = np.flatnonzero((operator == np.arange(len(operator))) & (around.marker != NO_ROW))
    rows = rows[~around.is_trial(rows)]
    return _by_marker(around.marker[rows], rows)


def _by_marker(marker: Ints, values: Ints) -> dict[int, Ints]:
    order = np.argsort(marker, kind="stable")
    distinct, first = np.unique(marker[order], return_index=True)
    return dict(zip(distinct.tolist(), np.split(values[order], first[1:]), strict=False))


def _forward_regions(around: Surroundings) -> dict[int, set[str]]:
    """Return the compile ids of the compiled forwards of each sequence number."""
    events, regions = around.events, dict[int, set[str]]()
    is_forward = ask(events.name, classify.is_compiled_forward)
    numbered = is_forward & ~np.ma.getmaskarray(events.sequence_number)
    for row in np.flatnonzero(numbered & (around.region != NO_ROW)):
        region = names.region_id(events.name[int(around.region[row])])
        regions.setdefault(int(events.sequence_number[row]), set()).add(region or "")
    return regions


def _compile_id(around: Surroundings, regions: dict[int, set[str]], marker: int) -> str | None:
    """Return the region of a call; a backward's is that of the forward with its number."""
    if around.backward[marker] == NO_ROW:
        region = int(around.region[marker])
        return None if region == NO_ROW else names.region_id(around.events.name[region])
    number = around.events.sequence_number[int(around.backward[marker])]
    candidates = set() if number is np.ma.masked else regions.get(int(number), set())
    return next(iter(candidates)) if len(candidates) == 1 else None


def _call(
    around: Surroundings,
    enqueued: Enqueued,
    unit_row: Ints,
    members: dict[int, Ints],
    called: dict[int, Ints],
    regions: dict[int, set[str]],
    marker: int,
) -> GraphCall:
    launches = members.get(marker, np.empty(0, dtype=np.int64))
    trial = around.is_trial(enqueued.cpu[launches])
    units = _units(around.events, enqueued, unit_row, launches[~trial], called.get(marker))
    return GraphCall(
        marker=marker,
        key=names.graph_key(around.events.name[marker]),
        compile_id=_compile_id(around, regions, marker),
        context=around.context(marker),
        units=tuple(unit for unit, _ in units),
        launches=tuple(own for _, own in units),
        trials=tuple(launches[trial].tolist()),
    )


def _units(
    events: Events, enqueued: Enqueued, unit_row: Ints, launches: Ints, called: Ints | None
) -> list[tuple[Unit, tuple[int, ...]]]:
    """List what a call ran in enqueue order.

    A call that replays also shows the operators of the recording, which launched nothing;
    those are left out, as their work is what the replay runs.
    """
    owned: dict[int, list[int]] = {int(r): [] for r in (() if called is None else called)}
    found = list[tuple[tuple[int, int], Unit, tuple[int, ...]]]()
    for launch in launches[np.argsort(enqueued.enqueue_ns[launches], kind="stable")].tolist():
        row, call = int(unit_row[launch]), int(enqueued.call[launch])
        if call != NO_ROW and names.is_graph_launch(events.name[call]):
            found.append(_replayed(events, enqueued, launch))
        else:
            owned.setdefault(row, []).append(launch)
    replays = bool(found)
    for row, own in owned.items():
        if own or not replays:
            name = names.kernel_name(events.name[row])
            found.append(((int(events.start_ns[row]), 0), Unit(name), tuple(own)))
    found.sort(key=lambda item: item[0])
    return [(unit, own) for _, unit, own in found]


def _replayed(
    events: Events, enqueued: Enqueued, launch: int
) -> tuple[tuple[int, int], Unit, tuple[int, ...]]:
    row = int(enqueued.event[launch])
    category = events.category[row]
    is_kernel = not (classify.is_copy(category) or classify.is_memset(category))
    unit = Unit(names.kernel_name(events.name[row]), True, is_kernel)
    order = (int(enqueued.enqueue_ns[launch]), int(events.start_ns[row]))
    return order, unit, (launch,)
