"""Owns gradients taken inside the traced function: the op that each of their nodes differentiates.

An op of such a gradient is made while an autograd node runs, whose number was given just
before the forward op's nodes were made. Other numbers may have been given there too, and an op
may leave no node: the forward op must bear the autograd node's name as well. What does not is
left unlinked. A gradient of a gradient leads to the gradient's node, and on to its forward.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from profiler_ext.capture.lineage.links import HAND_ON
from profiler_ext.capture.lineage.stage import Lineages, Link, Stage
from profiler_ext.capture.lineage.sums import summed_values
from profiler_ext.capture.traces.creations import Creation, Creations, as_made
from profiler_ext.records import ForwardEvidence, Lineage, Mechanism
from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.autograd import AutogradNode
from profiler_ext.torch_compat.names import fx_names

_BUILTIN = re.compile(r"(?P<op>\w+)Backward\d+")
_COPY_SLICES = "torch::autograd::CopySlices"
_LEAST_PREFIX = 4


@dataclass(frozen=True, slots=True)
class Gradients:
    """What is known of the nodes of gradients that are taken inside a traced function.

    Attributes:
        links: to the node whose op each of them differentiates.
        places: the node whose place is theirs; ``None`` where torch gave them the right one.
        made: gives the node of one that autograd made, as far as it is known.
    """

    links: Mapping[str, Link]
    places: Mapping[str, Lineage | None]
    made: Callable[[str], str | None]


def find_gradients(traced: Creations, overwritten: Lineages | None = None) -> Gradients:
    """Lead the nodes of gradients to what they differentiate.

    Args:
        traced: how the nodes of a graph were made, in order.
        overwritten: what nodes said of their origin before a pass overwrote it, by name.

    Returns:
        Their links and places.
    """
    if all(creation.autograd_node is None for creation in traced.values()):
        return Gradients({}, {}, lambda _: None)
    creations = as_made(traced, overwritten or {})
    made, rule = _Made(creations), ForwardEvidence.AUTOGRAD_NODE
    # A backward that torch tags has torch's links, and no other is led to it.
    is_tagged = not any(map(_is_traced, creations.values()))
    forward = {} if is_tagged else _made_by(made)
    links = {n: Link(node, rule) for n, node in forward.items() if _is_traced(creations[n])}
    links |= {} if is_tagged else _seeds(creations, links)
    # The joint graph's own backward of such a gradient has its numbers, and the line that asks.
    outer = {n: Link(node, rule) for n, node in forward.items() if node in links}
    links |= outer
    sums = frozenset(_sums(creations))
    places = _places(creations, links, sums)
    links = {n: link for n, link in links.items() if n not in sums}
    values = dict(summed_values(creations, sums, made.by))
    of_sums = {n: Link(value, ForwardEvidence.GRADIENT_SUM) for n, value in values.items()}
    return Gradients(links | of_sums, {**places, **_places(creations, of_sums, sums)}, made.of)


def gradient_of(stage: Stage) -> Lineages:
    """Say of a gradient's node that it stands where the op does that it differentiates."""
    known = stage.joint.findings.gradients if stage.joint else {}
    return _standing(stage, {n: at for n, at in known.items() if not (at and at.is_gradient_acc)})


def sum_of_gradients(stage: Stage) -> Lineages:
    """Say of a sum of gradients that it stands where the value is made whose gradients it sums."""
    known = stage.joint.findings.gradients if stage.joint else {}
    return _standing(stage, {n: at for n, at in known.items() if at and at.is_gradient_acc})


def _standing(stage: Stage, places: Mapping[str, Lineage | None]) -> Lineages:
    lineages: dict[str, Lineage] = {}
    for node in stage.nodes if places else ():
        place = places.get(stage.compilation.traced_name(node) or "")
        if place is not None:
            own = stage.lineages[node.name].standing_at(place)
            summed = replace(own, is_gradient_acc=own.is_gradient_acc or place.is_gradient_acc)
            rule = Mechanism.GRADIENT_SUM if place.is_gradient_acc else Mechanism.GRADIENT
            lineages[node.name] = summed.by(rule) if place.stack else summed
    return lineages


def made_by(creations: Creations) -> dict[str, str]:
    """Return, of each node made while an autograd node ran, the node with which that was made."""
    return _made_by(_Made(creations))


def _made_by(made: _Made) -> dict[str, str]:
    node_of = {name: made.of(name) for name in made.creations}
    return {name: node for name, node in node_of.items() if node is not None}


def _is_traced(creation: Creation) -> bool:
    """The joint graph's own backward is tagged, and has torch's links."""
    return (
        creation.autograd_node is not None
        and creation.lineage.partitioner_tag != fx_names.TAG_BACKWARD.text
    )


def _asks(creation: Creation) -> bool:
    """Tell whether torch gives a node the line that asks for the gradient."""
    return fx.asks_for_gradient(creation.lineage.source_fns)


class _Made:
    """The nodes of a graph, by the autograd nodes that were made with them."""

    def __init__(self, creations: Creations) -> None:
        self.creations = creations
        self._ops: dict[str, str] = {}
        self._runs: dict[int, list[_Run]] = defaultdict(list)
        for name, creation in creations.items():
            runs = self._runs[creation.thread]
            before = runs[-1].names[-1] if runs else None
            is_same = (
                before is not None and creations[before].autograd_node == creation.autograd_node
            )
            if creation.until > creation.since or not is_same:
                runs.append(_Run(creation.since, creation.until, before, []))
            runs[-1].names.append(name)

    def of(self, name: str) -> str | None:
        """Return the node with which the autograd node was made that ran when a node was made."""
        creation = self.creations.get(name)
        return None if creation is None or creation.autograd_node is None else self.by(creation)

    def by(self, creation: Creation) -> str | None:
        """Return the node of the op that made the autograd node which made a node."""
        autograd_node = creation.autograd_node
        assert autograd_node is not None
        runs = (_run_with(autograd_node.number, runs) for runs in self._runs.values())
        nodes = {self._of_run(run, autograd_node, creation) for run in runs if run is not None} - {
            None
        }
        return nodes.pop() if len(nodes) == 1 else None

    def _of_run(self, run: _Run, autograd_node: AutogradNode, creation: Creation) -> str | None:
        if autograd_node.name == _COPY_SLICES:  # it is made after the op that mutates a view
            return run.before
        named = self._named(run, autograd_node) or self._of_function(run, autograd_node, creation)
        if not named:
            return None
        # One op decomposes into several nodes; the last one yields its value.
        return next((n for n in reversed(named) if self.creations[n].target not in HAND_ON), None)

    def _named(self, run: _Run, autograd_node: AutogradNode) -> list[str]:
        """The nodes of the first op that bears the autograd node's name."""
        op = _plain(
            builtin["op"]
            if (builtin := _BUILTIN.fullmatch(autograd_node.name))
            else autograd_node.name
        )
        for same in (str.__eq__, _is_prefix):
            first = next((n for n in run.names if same(self._op(n), op)), None)
            if first is not None:
                return [n for n in run.names if self._is_one_call(first, n)]
        return []

    def _of_function(self, run: _Run, autograd_node: AutogradNode, creation: Creation) -> list[str]:
        """The forward of an ``autograd.Function``, in whose call its backward stands too."""
        call = creation.lineage.source_fns[:1]
        if _BUILTIN.fullmatch(autograd_node.name) or not call or _asks(creation):
            return []
        is_called = self._source(run.names[0])[:1] == call
        return [n for n in run.names if is_called and self._source(n)[:1] == call]

    def _op(self, name: str) -> str:
        if name not in self._ops:  # asked for each node that was made while its autograd node ran
            creation = self.creations[name]
            op = creation.lineage.original_aten or creation.target
            self._ops[name] = _plain(op.split(".")[1] if "." in op else op)
        return self._ops[name]

    def _source(self, name: str) -> tuple[str, ...]:
        return self.creations[name].lineage.source_fns

    def _is_one_call(self, one: str, other: str) -> bool:
        return (self._op(one), self._source(one)) == (self._op(other), self._source(other))


@dataclass(frozen=True, slots=True)
class _Run:
    """Nodes that were made one after the other, and no autograd node between them.

    Attributes:
        since: the last number given before those of the first node.
        until: the last number given before the first node was made.
        before: the node that was made before them.
        names: the nodes.
    """

    since: int
    until: int
    before: str | None
    names: list[str]


def _run_with(number: int, runs: list[_Run]) -> _Run | None:
    """Return the run before which a number was given, of the runs of one thread."""
    at = bisect_left(runs, number, key=lambda run: run.until)
    return runs[at] if at < len(runs) and runs[at].since < number else None


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _is_prefix(one: str, other: str) -> bool:
    """Tell whether one name begins with the other: ``nll_loss_forward`` and ``NllLoss``."""
    short = min(one, other, key=len)
    return len(short) >= _LEAST_PREFIX and one.startswith(short) and other.startswith(short)


def _seeds(creations: Creations, links: Mapping[str, Link]) -> dict[str, Link]:
    """Lead a gradient's first value to the op whose gradient it is: the one that it is handed."""
    first = (n for n, made in creations.items() if made.autograd_node is None and _asks(made))
    users: dict[str, set[str | None]] = {name: set() for name in first}
    for name, creation in creations.items() if users else ():
        for value in users.keys() & creation.inputs:
            users[value].add(links[name].forward_node if name in links else None)
    return {
        name: Link(forward, ForwardEvidence.SEED_OF_GRADIENT)
        for name, readers in users.items()
        if len(readers) == 1
        for forward in readers
        if forward is not None
    }


def _sums(creations: Creations) -> Iterator[str]:
    """Find the sums of gradients of one value: autograd makes them when a node has run."""
    yield from (name for name, creation in creations.items() if creation.lineage.is_gradient_acc)
    for autograd_node, group in groupby(creations, key=lambda name: creations[name].autograd_node):
        if autograd_node is None:
            continue
        names = list(group)
        for name in reversed(names):
            if not _is_sum(creations, name, frozenset(names)):
                break
            yield name


def _is_sum(creations: Creations, name: str, here: frozenset[str]) -> bool:
    """Tell whether an addition's inputs are gradients, of which one at least was there before."""
    creation = creations[name]
    if creation.target != "aten.add.Tensor" or not creation.inputs or not _asks(creation):
        return False
    if creation.lineage.original_aten != "aten.add.Tensor":
        return False
    if not all(v in creations and _is_gradient(creations[v]) for v in creation.inputs):
        return False
    return creation.feeds_twice or not here.issuperset(creation.inputs)


def _is_gradient(creation: Creation) -> bool:
    return creation.autograd_node is not None or _asks(creation)


def _places(
    creations: Creations, links: Mapping[str, Link], sums: frozenset[str]
) -> dict[str, Lineage | None]:
    """Return the forward op's lineage, for nodes that have no better place."""
    lineages: dict[str, Lineage | None] = {}
    for name, link in links.items():
        forward, led = creations[link.forward_node].lineage, lineages.get(link.forward_node)
        place = forward if led is None else forward.standing_at(led)
        is_lost = _asks(creations[name]) or name in sums
        lineages[name] = replace(place, is_gradient_acc=name in sums) if is_lost else None
    return lineages
