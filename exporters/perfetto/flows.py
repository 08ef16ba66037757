"""Flow arrows: from CPU calls to launches, from forward to backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
import numpy.typing as npt

from profiler_ext.exporters.launch_parts import PartColumns
from profiler_ext.exporters.perfetto import window
from profiler_ext.exporters.perfetto.packets import FROM, TO, FlowIds
from profiler_ext.records import provenance, vocabulary
from profiler_ext.records.analysis import Analysis, Launches, Place
from profiler_ext.records.events import Events, Ints

# A joint graph's node in one module: layers may share a graph, but not a module.
_Node = tuple[str, str, str | None]
_KINDS = vocabulary.LaunchKind
_TRITON = (_KINDS.TRITON, _KINDS.TRITON_TEMPLATE, _KINDS.USER_TRITON)


def forward_launches(analysis: Analysis) -> dict[int, int]:
    """Return the forward launch of each backward launch of the first step.

    A backward launch belongs to the forward launch that computed the forward node of its largest
    part. If that ran several times in the step, autograd's order decides: the last forward that
    this kernel of this call site has not differentiated yet. For eager work autograd's sequence
    numbers identify the op; its longest launch is taken. Unknown pairs are left out.
    """
    return _Pairing(analysis).pairs() if analysis.steps else {}


class _Pairing:
    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._parts = PartColumns(analysis)
        launches = analysis.launches
        self._graph: list[int | None] = launches.graph.tolist()
        self._site: list[int | None] = launches.call_site.tolist()
        self._op: list[int | None] = launches.op_event.tolist()
        self._eager: list[int | None] = launches.forward.tolist()
        of, places = _Places(analysis), analysis.places
        self._differentiated = cache(lambda number: of.differentiated(places[number]))
        self._computed = cache(lambda number: tuple(of.computed(places[number])))
        self._ran: dict[_Node, list[int]] = defaultdict(list)
        self._taken: dict[tuple[object, ...], set[int]] = defaultdict(set)
        self._of_op: dict[tuple[object, ...], int] = {}

    def pairs(self) -> dict[int, int]:
        pairs: dict[int, int] = {}
        launches, first = self._analysis.launches, self._analysis.steps[0].number
        rows = np.flatnonzero((launches.step == first).filled(False))
        order = launches.start_ns[rows].argsort(kind="stable")
        ordered: list[int] = rows[order].tolist()
        for row in ordered:
            eager = self._eager[row]
            forward = self._forward_of(row) if eager is None else eager
            if forward is not None:
                pairs[row] = forward
            for place in self._parts.of(row):
                for node in self._computed(place):
                    if not self._continues(row, self._ran[node]):
                        self._ran[node].append(row)
        return pairs

    def _continues(self, row: int, ran: list[int]) -> bool:
        """Return whether a launch continues what an earlier call site of its call began.

        A pass may split one node in several: a product and the sum with its bias.
        """
        if not ran:
            return False
        before = ran[-1]
        if self._graph[row] != self._graph[before]:
            return False
        here, there = self._site[row], self._site[before]
        return here is not None and there is not None and here > there

    def _forward_of(self, row: int) -> int | None:
        places = self._parts.of(row)
        forward_node = self._differentiated(places[0]) if places else None
        if forward_node is None:
            return None
        name = self._analysis.launches.name[row]
        site, op = (self._graph[row], self._site[row], name, forward_node), self._op[row]
        if op is not None and (op, site) in self._of_op:  # one library call runs a kernel twice
            return self._of_op[op, site]
        free = (one for one in reversed(self._ran[forward_node]) if one not in self._taken[site])
        forward = next(free, None)
        if forward is not None:
            self._taken[site].add(forward)
            self._of_op[op, site] = forward
        return forward


class _Places:
    """The joint graph nodes that the launches of a place compute, or differentiate."""

    def __init__(self, analysis: Analysis) -> None:
        self._graphs = analysis.recording.graphs
        self._nodes: dict[tuple[int | None, str | None], provenance.FxNode] = {
            (number, node.name): node
            for number, graph in enumerate(self._graphs)
            for node in graph.nodes
        }

    def differentiated(self, place: Place) -> _Node | None:
        joint = self._joint(place)
        if place.phase != vocabulary.Phase.BACKWARD or joint is None or place.forward_node is None:
            return None
        return joint, place.forward_node, place.module

    def computed(self, place: Place) -> Iterator[_Node]:
        joint, node = self._joint(place), self._nodes.get((place.graph, place.node))
        if place.phase == vocabulary.Phase.FORWARD and joint is not None and node is not None:
            # The joint graph has the node itself, or what it replaced.
            joint_name = node.lineage.joint_name
            for name in node.replaced if joint_name is None else (joint_name,):
                yield joint, name, place.module

    def _joint(self, place: Place) -> str | None:
        """Return a node's joint graph: its graph's, or that of compiled autograd's origin."""
        node = self._nodes.get((place.graph, place.node))
        if node is not None and node.lineage.joint is not None:
            return node.lineage.joint
        graph = None if place.graph is None else self._graphs[place.graph]
        return None if graph is None else graph.joint


class Flows:
    """One flow per launch, so a replayed CUDA graph is a star and not a chain."""

    def __init__(self, analysis: Analysis) -> None:
        events, launches = analysis.recording.trace.events, analysis.launches
        is_on_stream = ~np.ma.getmaskarray(launches.stream)
        on_stream = launches.event[is_on_stream]
        pids = {events.threads[index].pid for index in np.unique(events.thread[on_stream])}
        device_threads = [
            index for index, thread in enumerate(events.threads) if thread.pid in pids
        ]
        on_device = np.isin(events.thread, device_threads)
        # Rows of ``Events``.
        self.host_rows: Ints = np.flatnonzero(~on_device & ~window.is_recording(events))
        self.device_rows: Ints = np.flatnonzero(on_device)
        self.call_names = _call_names(launches, is_on_stream)
        called, calls = _calls(events, self.host_rows, launches)
        pairs = forward_launches(analysis)
        backward, forward = (np.array([*each], np.int64) for each in (pairs, pairs.values()))
        between = np.arange(len(pairs)) + len(launches) + 1
        self.from_host = FlowIds(FROM, calls, called + 1)
        self.from_launch = FlowIds(FROM, forward, between)  # to its backward launch
        self.to_launch = FlowIds(
            TO, np.concatenate((called, backward)), np.concatenate((called + 1, between))
        )


def _call_names(launches: Launches, is_on_stream: npt.NDArray[np.bool_]) -> Mapping[str, str]:
    """Return new names of the CPU calls that are named like the kernel that they launch.

    The viewer lists what a search finds by time, and a call comes before its kernel. With spaces
    in its name, a search for the kernel does not find it.
    """
    of_triton = launches.kernel[is_on_stream & launches.kind.where(*_TRITON)]
    names = {*launches.name[is_on_stream].strings, *of_triton.strings} - {""}
    return {name: f"launch {name.replace('_', ' ')}" for name in names}


def _calls(events: Events, host_rows: Ints, launches: Launches) -> tuple[Ints, Ints]:
    """Return the launches whose CPU call is known, and the rows of these calls."""
    rows = host_rows[~np.ma.getmaskarray(events.correlation)[host_rows]]
    numbers = events.correlation.data[rows]
    order = np.argsort(numbers, kind="stable")
    numbers, rows = numbers[order], rows[order]
    absent = np.ma.getmaskarray(launches.correlation) | np.ma.getmaskarray(launches.stream)
    correlated = np.flatnonzero(~absent)
    wanted = launches.correlation.data[correlated]
    # Of several calls with one number the last in the file.
    last = np.searchsorted(numbers, wanted, "right") - 1
    known = last >= 0
    known[known] = numbers[last[known]] == wanted[known]
    return correlated[known], rows[last[known]]
