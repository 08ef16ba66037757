"""The autograd node that ran while each node of a graph was traced."""

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
from profiler_ext.isolation import guard, hook_protocols
from profiler_ext.records.lineage import Lineage
from profiler_ext.torch_compat import fx, patches, points
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


@dataclass(frozen=True)
class Creation:
    """How a node of a traced graph was made.

    If a gradient is taken inside the traced function, each of its ops is made while an autograd
    node runs, which got its number when the forward op was made: an exact link where torch's
    metadata has none.
    """

    target: str
    inputs: tuple[str, ...]
    meta: fx.Meta  # outlives the node
    autograd_node: AutogradNode | None  # that ran
    feeds_twice: bool  # it sends two gradients to one other node, which are summed
    thread: int  # numbers are per thread
    since: int  # the last number before the previous node was made
    until: int  # the last number before this node was made
    edges: Edges = field(default_factory=dict)  # of autograd's nodes from that one on
    replays: str | None = None  # the view that functionalization replayed
    hook: fx.Meta | None = None  # of the node in a hook's body that was traced
    overwritten: Lineage | None = None  # before a pass overwrote its metadata

    @functools.cached_property
    def lineage(self) -> Lineage:
        """Its lineage by its own metadata, once that is complete."""
        own = lineage_of(self.meta)
        return own if self.overwritten is None else own.traced_from(self.overwritten)


Creations = Mapping[str, Creation]
_KEPT_TRACES = 256


def with_overwritten(creations: Creations, overwritten: Mapping[str, Lineage]) -> Creations:
    """Return the creations with the lineages from before a pass overwrote them."""
    known = overwritten.keys() & creations.keys()
    was = {n: dataclasses.replace(creations[n], overwritten=overwritten[n]) for n in known}
    return {**creations, **was}


class _PerThread(threading.local):
    """The last number before a node was made in this thread, and the backward that begins."""

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

    def observations(self) -> list[patches.Hook]:
        """Return the hooks."""
        return [
            (points.NODE_MADE, hook_protocols.Results(self._note)),
            (points.BACKWARD_BEGIN, self._backward_begin),
        ]

    def of(self, graph: torch.fx.Graph) -> Creations:
        """Return how the nodes of a graph were made, in order, erased ones included."""
        return self._creations.get(graph, {})

    @property
    def traced(self) -> tuple[Creations, ...]:
        """The creations of recently traced graphs."""
        return tuple(self._traced)

    def forget(self) -> None:
        """Forget traced graphs once they are compiled."""
        self._traced.clear()

    def _note(self, node: torch.fx.Node) -> None:
        thread, until = self._thread, last_sequence_nr()
        since, thread.last = thread.last, until
        if node.op == "call_function" and fx.is_tracing():
            self._keep(node, threading.get_ident(), until if since is None else since, until)

    def _backward_begin(self, call: guard.Observed) -> guard.Observation:
        self._thread.begun_edges = edges_of_backward(call["roots"])
        yield

    def _keep(self, node: torch.fx.Node, thread: int, since: int, until: int) -> None:
        by = current_autograd_node()
        target, replayed = fx.target_name(node.target), fx.replayed_node()
        of_hook = node_of_hook() if by is not None else None
        graph = node.graph
        known = self._edges.setdefault(graph, {})
        if by is not None and by not in known:
            begun_edges, self._thread.begun_edges = self._thread.begun_edges, None
            known.update(begun_edges or {})
            note_edges(known)
        creation = Creation(
            target=target,
            inputs=tuple(value.name for value in node.all_input_nodes),
            meta=node.meta,
            autograd_node=by,
            feeds_twice=by is not None and target == "aten.add.Tensor" and feeds_twice(),
            thread=thread,
            since=since,
            until=until,
            edges=known,
            replays=None if replayed is None else replayed.name,
            hook=None if of_hook is None else of_hook.meta,
        )
        if (made := self._creations.get(node.graph)) is None:
            made = self._creations[node.graph] = {}
            self._traced.append(made)
        made[node.name] = creation


@contextmanager
def watched() -> Iterator[CreationHooks]:
    """Watch what is traced in this context, whether capture is on or not."""
    creations = CreationHooks()
    with patches.installed(creations.observations(), guard.Guard(strict=True)):
        yield creations
