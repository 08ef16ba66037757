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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

from profiler_ext.capture.lineage.links import HAND_ON
from profiler_ext.capture.lineage.stage import Lineages, Link, Stage
from profiler_ext.capture.lineage.sums import summed_values
from profiler_ext.capture.traces.births import Birth, Births
from profiler_ext.records import ForwardEvidence, Lineage, Mechanism
from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.autograd import Running
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
        made: the node of each one that autograd made, as far as it is known.
    """

    links: Mapping[str, Link] = field(default_factory=dict)
    places: Mapping[str, Lineage | None] = field(default_factory=dict)
    made: Mapping[str, str] = field(default_factory=dict)


def find_gradients(births: Births) -> Gradients:
    """Lead the nodes of gradients to what they differentiate.

    Args:
        births: how the nodes of a graph were made, in order.
    """
    forward = made_by(births)
    rule = ForwardEvidence.AUTOGRAD_NODE
    links = {n: Link(node, rule) for n, node in forward.items() if _is_traced(births[n])}
    links |= _seeds(births, links)
    # The joint graph's own backward of such a gradient has its numbers, and the line that asks.
    outer = {n: Link(node, rule) for n, node in forward.items() if node in links}
    links |= outer
    sums = frozenset(_sums(births))
    places = _places(births, links, sums)
    links = {n: link for n, link in links.items() if n not in sums}
    values = dict(summed_values(births, sums, _Made(births).by))
    of_sums = {n: Link(value, ForwardEvidence.GRADIENT_SUM) for n, value in values.items()}
    return Gradients(links | of_sums, {**places, **_places(births, of_sums, sums)}, forward)


def gradient_of(stage: Stage) -> Lineages:
    """Say of a gradient's node that it stands where the op does that it differentiates."""
    known = stage.joint.found.gradients if stage.joint else {}
    return _standing(stage, {n: at for n, at in known.items() if not (at and at.is_gradient_acc)})


def sum_of_gradients(stage: Stage) -> Lineages:
    """Say of a sum of gradients that it stands where the value is made whose gradients it sums."""
    known = stage.joint.found.gradients if stage.joint else {}
    return _standing(stage, {n: at for n, at in known.items() if at and at.is_gradient_acc})


def _standing(stage: Stage, places: Mapping[str, Lineage | None]) -> Lineages:
    found: dict[str, Lineage] = {}
    for node in stage.nodes if places else ():
        place = places.get(stage.compilation.traced_name(node) or "")
        if place is not None:
            own = stage.lineages[node.name].standing_at(place)
            summed = replace(own, is_gradient_acc=own.is_gradient_acc or place.is_gradient_acc)
            rule = Mechanism.GRADIENT_SUM if place.is_gradient_acc else Mechanism.GRADIENT
            found[node.name] = summed.by(rule) if place.stack else summed
    return found


def made_by(births: Births) -> dict[str, str]:
    """Return, of each node made while an autograd node ran, the node with which that was made."""
    made = _Made(births)
    found = {name: made.by(birth) for name, birth in births.items() if birth.running is not None}
    return {name: node for name, node in found.items() if node is not None}


def _is_traced(birth: Birth) -> bool:
    """The joint graph's own backward is tagged, and has torch's links."""
    return birth.running is not None and birth.lineage.partitioner_tag != fx_names.TAG_BACKWARD.text


def _asks(birth: Birth) -> bool:
    """Tell whether torch gives a node the line that asks for the gradient."""
    return fx.asks_for_gradient(birth.lineage.source_fns)


class _Made:
    """The nodes of a graph, by the autograd nodes that were made with them."""

    def __init__(self, births: Births) -> None:
        self._births = births
        self._runs: dict[int, list[_Run]] = defaultdict(list)
        for name, birth in births.items():
            runs = self._runs[birth.thread]
            before = runs[-1].names[-1] if runs else None
            is_same = before is not None and births[before].running == birth.running
            if birth.until > birth.since or not is_same:
                runs.append(_Run(birth.since, birth.until, before, []))
            runs[-1].names.append(name)

    def by(self, birth: Birth) -> str | None:
        """Return the node of the op that made the autograd node which made a node."""
        running = birth.running
        assert running is not None
        runs = (_run_with(running.number, runs) for runs in self._runs.values())
        found = {self._of_run(run, running, birth) for run in runs if run is not None} - {None}
        return found.pop() if len(found) == 1 else None

    def _of_run(self, run: _Run, running: Running, birth: Birth) -> str | None:
        if running.name == _COPY_SLICES:  # it is made after the op that mutates a view
            return run.before
        named = self._named(run, running) or self._of_function(run, running, birth)
        if not named:
            return None
        # One op decomposes into several nodes; the last one yields its value.
        return next((n for n in reversed(named) if self._births[n].target not in HAND_ON), None)

    def _named(self, run: _Run, running: Running) -> list[str]:
        """The nodes of the first op that bears the autograd node's name."""
        op = _plain(found["op"] if (found := _BUILTIN.fullmatch(running.name)) else running.name)
        for same in (str.__eq__, _is_prefix):
            first = next((n for n in run.names if same(self._op(n), op)), None)
            if first is not None:
                return [n for n in run.names if self._is_one_call(first, n)]
        return []

    def _of_function(self, run: _Run, running: Running, birth: Birth) -> list[str]:
        """The forward of an ``autograd.Function``, in whose call its backward stands too."""
        call = birth.lineage.source_fns[:1]
        if _BUILTIN.fullmatch(running.name) or not call or _asks(birth):
            return []
        is_called = self._source(run.names[0])[:1] == call
        return [n for n in run.names if is_called and self._source(n)[:1] == call]

    def _op(self, name: str) -> str:
        birth = self._births[name]
        op = birth.lineage.original_aten or birth.target
        return _plain(op.split(".")[1] if "." in op else op)

    def _source(self, name: str) -> tuple[str, ...]:
        return self._births[name].lineage.source_fns

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


def _seeds(births: Births, links: Mapping[str, Link]) -> dict[str, Link]:
    """Lead a gradient's first value to the op whose gradient it is: the one that it is handed."""
    users = defaultdict(set)
    for name, birth in births.items():
        for value in birth.inputs:
            users[value].add(links[name].forward_node if name in links else None)
    return {
        name: Link(forward, ForwardEvidence.SEED_OF_GRADIENT)
        for name, birth in births.items()
        if birth.running is None and _asks(birth) and len(users[name]) == 1
        for forward in users[name]
        if forward is not None
    }


def _sums(births: Births) -> Iterator[str]:
    """Find the sums of gradients of one value: autograd makes them when a node has run."""
    yield from (name for name, birth in births.items() if birth.lineage.is_gradient_acc)
    for running, group in groupby(births, key=lambda name: births[name].running):
        if running is None:
            continue
        names = list(group)
        for name in reversed(names):
            if not _is_sum(births, name, frozenset(names)):
                break
            yield name


def _is_sum(births: Births, name: str, here: frozenset[str]) -> bool:
    """Tell whether an addition's inputs are gradients, of which one at least was there before."""
    birth = births[name]
    if birth.target != "aten.add.Tensor" or not birth.inputs or not _asks(birth):
        return False
    if birth.lineage.original_aten != "aten.add.Tensor":
        return False
    if not all(v in births and _is_gradient(births[v]) for v in birth.inputs):
        return False
    return birth.feeds_twice or not here.issuperset(birth.inputs)


def _is_gradient(birth: Birth) -> bool:
    return birth.running is not None or _asks(birth)


def _places(
    births: Births, links: Mapping[str, Link], sums: frozenset[str]
) -> dict[str, Lineage | None]:
    """Return the forward op's lineage, for nodes that have no better place."""
    found: dict[str, Lineage | None] = {}
    for name, link in links.items():
        forward, led = births[link.forward_node].lineage, found.get(link.forward_node)
        place = forward if led is None else forward.standing_at(led)
        is_lost = _asks(births[name]) or name in sums
        found[name] = replace(place, is_gradient_acc=name in sums) if is_lost else None
    return found
