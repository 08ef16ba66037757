"""Which autograd node ran while each node of a graph was traced.

Autograd numbers its nodes. Where a gradient is taken inside the function that is traced, each
op of it is made while an autograd node runs, and the number of that node was given when the
forward op was made: the exact link, where torch's own metadata has none.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch.fx

from profiler_ext.capture.traces.metadata import lineage_of
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.isolation.hook_protocols import Results
from profiler_ext.records.lineage import Lineage
from profiler_ext.torch_compat import fx, points
from profiler_ext.torch_compat.autograd import (
    AutogradNode,
    Edge,
    Edges,
    current_autograd_node,
    edges_of_backward,
    feeds_twice,
    last_sequence_nr,
    node_of_hook,
    note_edges,
)
from profiler_ext.torch_compat.patches import Hook, installed


@dataclass(frozen=True)
class Creation:
    """How a node of a traced graph was made.

    Attributes:
        target: what it calls.
        inputs: the nodes that it reads.
        meta: its metadata, which outlives the node where a pass erases it.
        autograd_node: the autograd node that ran, if one did.
        feeds_twice: that node hands two gradients to one other node, which are summed.
        edges: where autograd's nodes hand their gradients, as far as that one leads.
        replays: the view that functionalization made anew with it.
        hook: the metadata of the node of a hook's body that was traced with it.
        overwritten: where it came from, before a pass overwrote it.
        thread: where it was made; each thread has numbers of its own.
        since: the last number given before the node that was made before it.
        until: the last number given before it was made.
    """

    target: str
    inputs: tuple[str, ...]
    meta: fx.Meta
    autograd_node: AutogradNode | None
    feeds_twice: bool
    thread: int
    since: int
    until: int
    edges: Edges = field(default_factory=dict)
    replays: str | None = None
    hook: fx.Meta | None = None
    overwritten: Lineage | None = None

    @functools.cached_property
    def lineage(self) -> Lineage:
        """Where it comes from by its own metadata, once that is complete."""
        own = lineage_of(self.meta)
        return own if self.overwritten is None else own.traced_from(self.overwritten)


Creations = Mapping[str, Creation]
_KEPT_TRACES = 256


def with_overwritten(creations: Creations, overwritten: Mapping[str, Lineage]) -> Creations:
    """Return the creations with what nodes said of their origin before a pass overwrote it."""
    known = overwritten.keys() & creations.keys()
    was = {n: dataclasses.replace(creations[n], overwritten=overwritten[n]) for n in known}
    return {**creations, **was}


class _PerThread(threading.local):
    """The last number that was given before a node was made here, and the backward that begins."""

    last: int | None = None
    begun_edges: dict[AutogradNode, tuple[Edge, ...]] | None = None


class CreationHooks:
    """Watches the nodes of graphs as they are traced."""

    def __init__(self) -> None:
        self._creations: WeakKeyDictionary[torch.fx.Graph, dict[str, Creation]] = (
            WeakKeyDictionary()
        )
        self._edges: WeakKeyDictionary[torch.fx.Graph, dict[AutogradNode, tuple[Edge, ...]]] = (
            WeakKeyDictionary()
        )
        self._traced: deque[dict[str, Creation]] = deque(maxlen=_KEPT_TRACES)
        self._thread = _PerThread()

    def observations(self) -> list[Hook]:
        """Return what is observed where."""
        return [
            (points.NODE_MADE, Results(self._note)),
            (points.BACKWARD_BEGIN, self._backward_begin),
        ]

    def of(self, graph: torch.fx.Graph) -> Creations:
        """Return how the nodes of a graph were made, in order, those gone since included."""
        return self._creations.get(graph, {})

    @property
    def traced(self) -> tuple[Creations, ...]:
        """How the nodes of the graphs were made that were traced lately, gone since or not."""
        return tuple(self._traced)

    def forget(self) -> None:
        """Let go of graphs that are gone: what was traced of them is compiled."""
        self._traced.clear()

    def _note(self, node: torch.fx.Node) -> None:
        thread, until = self._thread, last_sequence_nr()
        since, thread.last = thread.last, until
        if node.op == "call_function" and fx.is_tracing():
            self._keep(node, threading.get_ident(), until if since is None else since, until)

    def _backward_begin(self, call: Observed) -> Observation:
        self._thread.begun_edges = edges_of_backward(call["roots"])
        yield

    def _edges_of(self, graph: torch.fx.Graph, by: AutogradNode | None) -> Edges:
        known = self._edges.setdefault(graph, {})
        if by is not None and by not in known:
            begun_edges, self._thread.begun_edges = self._thread.begun_edges, None
            known.update(begun_edges or {})
            note_edges(known)
        return known

    def _keep(self, node: torch.fx.Node, thread: int, since: int, until: int) -> None:
        by = current_autograd_node()
        target, replayed = fx.target_name(node.target), fx.replayed_node()
        of_hook = node_of_hook() if by is not None else None
        creation = Creation(
            target=target,
            inputs=tuple(value.name for value in node.all_input_nodes),
            meta=node.meta,
            autograd_node=by,
            feeds_twice=by is not None and target == "aten.add.Tensor" and feeds_twice(),
            thread=thread,
            since=since,
            until=until,
            edges=self._edges_of(node.graph, by),
            replays=None if replayed is None else replayed.name,
            hook=None if of_hook is None else of_hook.meta,
        )
        if (made := self._creations.get(node.graph)) is None:
            made = self._creations[node.graph] = {}
            self._traced.append(made)
        made[node.name] = creation


@contextmanager
def watched() -> Iterator[CreationHooks]:
    """Watch what is traced in this context, whether capture is on or not.

    Raises:
        TorchCapabilityError: A function of torch's is not there or has another shape.
    """
    creations = CreationHooks()
    with installed(creations.observations(), Guard(strict=True)):
        yield creations
