"""Lineage of gradients taken inside the traced function: the op differentiated, or the hook.

Source: ``torch/_functorch/_aot_autograd/logging_utils.py``, ``get_posthook``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from profiler_ext.capture.lineage.autograd_nodes import AutogradNodeIndex
from profiler_ext.capture.lineage.gradient_sums import CallOf, parts_of_sums, summed_values
from profiler_ext.capture.lineage.stage import Lineages, Link, Stage
from profiler_ext.capture.traces.creations import Creation, Creations
from profiler_ext.capture.traces.metadata import lineage_of
from profiler_ext.records.evidence import ForwardEvidence, Mechanism
from profiler_ext.records.lineage import Lineage
from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.names import fx_names


def find_gradient_hooks(creations: Creations) -> Lineages:
    """Return the lineage of the nodes that hooks on gradients made."""
    # A hook runs between two autograd nodes, where torch marks all ops as sums of gradients, with
    # the line of the node before. A hook's body in Dynamo's graph is exact. Without one, an
    # addition after an autograd node is a sum, and other marked nodes are a hook's.
    hook_nodes: dict[str, None] = {}
    for node, group in groupby(creations, key=lambda name: creations[name].autograd_node):
        if node is not None:
            names = list(group)
            known = [name for name in names if creations[name].hook is not None]
            hook_nodes |= dict.fromkeys(known or _hook_nodes_among(creations, names))
    lineages: dict[str, Lineage] = {}
    for name in hook_nodes:
        own = replace(creations[name].lineage, stack=(), is_gradient_acc=False)
        place = lineage_of(creations[name].hook or {})
        lineages[name] = own.with_place_of(place).by(Mechanism.HOOK)
    return lineages


def _hook_nodes_among(creations: Creations, names: Sequence[str]) -> Iterator[str]:
    """Find a hook's nodes among those made while one autograd node ran: before its own."""
    names = [name for name in names if creations[name].replays is None]  # views are replayed late
    marked = [creations[name].lineage.is_gradient_acc for name in names]
    own = max((at for at, is_marked in enumerate(marked) if not is_marked), default=-1)
    parts = parts_of_sums(creations, names[own + 1 :])
    of_sums = parts.keys() | {part for each in parts.values() for part in each}
    hook_nodes: set[str] = set()
    for at, name in enumerate(names):
        is_addition = creations[name].target == "aten.add.Tensor" or name in of_sums
        is_sum = is_addition and at > own
        if marked[at] and (not is_sum or not hook_nodes.isdisjoint(creations[name].inputs)):
            hook_nodes.add(name)
            yield name


def hook_on_gradient(stage: Stage) -> Lineages:
    """Give the nodes of a hook on a gradient the place in the hook, or none."""
    known = stage.joint.findings.hooks if stage.joint else {}
    names = {node.name: stage.compilation.traced_name(node) or "" for node in stage.nodes if known}
    return {name: known[traced] for name, traced in names.items() if traced in known}


@dataclass(frozen=True, slots=True)
class Gradients:
    """The nodes of gradients that are taken inside a traced function."""

    links: Mapping[str, Link]  # to the node that each differentiates
    places: Mapping[str, Lineage | None]  # ``None`` if torch's own is right
    made: Callable[[str], str | None]  # the node with which an autograd node was made


def find_gradients(creations: Creations) -> Gradients:
    """Match the nodes of gradients to what they differentiate."""
    if all(creation.autograd_node is None for creation in creations.values()):
        return Gradients({}, {}, lambda _: None)
    made, rule = AutogradNodeIndex(creations), ForwardEvidence.AUTOGRAD_NODE
    # A backward that torch tags has torch's links.
    is_tagged = not any(map(_is_traced, creations.values()))
    forward = {} if is_tagged else made.every()
    links = {} if is_tagged else dict(_traced(made, forward))
    links |= {} if is_tagged else _seeds(creations, links)
    # The joint graph's own backward of such a gradient has its numbers, and the line of the call.
    outer = {n: Link(node, rule) for n, node in forward.items() if node in links}
    hooks = find_gradient_hooks(creations).keys()
    sums = frozenset(_sums(creations, hooks))
    links |= outer | dict(_without_source(creations, made, sums | hooks))
    places = _places(creations, links, sums, {})
    links = {n: link for n, link in links.items() if n not in sums}
    of_sums = dict(_links_of_sums(creations, sums, made.call_of))
    return Gradients(links | of_sums, _places(creations, of_sums, sums, places), made.of)


def _traced(made: AutogradNodeIndex, forward: Mapping[str, str]) -> Iterator[tuple[str, Link]]:
    """Match the nodes of gradients to an op, or to the call that the op belongs to."""
    for name in filter(lambda name: _is_traced(made.creations[name]), made.creations):
        if name in forward:
            yield name, Link(forward[name], ForwardEvidence.AUTOGRAD_NODE)
        elif (node := made.last_of_call(name)) is not None:
            yield name, Link(node, ForwardEvidence.AUTOGRAD_NODE_OF_CALL)


def gradient_of(stage: Stage) -> Lineages:
    """Give a gradient's node the place of the op that it differentiates."""
    known = stage.joint.findings.gradients if stage.joint else {}
    return _place_lineages(
        stage, {n: at for n, at in known.items() if not (at and at.is_gradient_acc)}
    )


def sum_of_gradients(stage: Stage) -> Lineages:
    """Give a sum of gradients the place of the value whose gradients it adds."""
    known = stage.joint.findings.gradients if stage.joint else {}
    return _place_lineages(stage, {n: at for n, at in known.items() if at and at.is_gradient_acc})


def _place_lineages(stage: Stage, places: Mapping[str, Lineage | None]) -> Lineages:
    lineages: dict[str, Lineage] = {}
    for node in stage.nodes if places else ():
        place = places.get(stage.compilation.traced_name(node) or "")
        if place is not None:
            # If torch has no line for it, the line of a use would be in another module.
            own = replace(stage.lineages[node.name].with_place_of(place), stack=place.stack)
            summed = replace(own, is_gradient_acc=own.is_gradient_acc or place.is_gradient_acc)
            rule = Mechanism.GRADIENT_SUM if place.is_gradient_acc else Mechanism.GRADIENT
            lineages[node.name] = summed.by(rule)
    return lineages


def _without_source(
    creations: Creations, made: AutogradNodeIndex, excluded: frozenset[str]
) -> Iterator[tuple[str, Link]]:
    """Match the nodes of torch's own backward whose number has no forward op."""
    for name in creations.keys() - excluded:
        node = made.of(name) if _lacks_source(creations[name]) else None
        if node is not None:
            yield name, Link(node, ForwardEvidence.AUTOGRAD_NODE)


def _lacks_source(creation: Creation) -> bool:
    own = creation.lineage
    is_of_backward = creation.autograd_node is not None and not _is_traced(creation)
    return is_of_backward and bool(own.stack) and not own.source_fns and not own.modules


def _is_traced(creation: Creation) -> bool:
    # The joint graph's own backward is tagged, and has torch's links.
    is_tagged = creation.lineage.partitioner_tag == fx_names.TAG_BACKWARD.text
    return creation.autograd_node is not None and not is_tagged


def _is_at_grad_call(creation: Creation) -> bool:
    """Tell whether torch gave a node the line of ``autograd.grad``."""
    return fx.calls_autograd_grad(creation.lineage.source_fns)


def _seeds(creations: Creations, links: Mapping[str, Link]) -> dict[str, Link]:
    """Match a gradient's first value to the op that receives it."""
    first = (
        n for n, made in creations.items() if made.autograd_node is None and _is_at_grad_call(made)
    )
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


def _sums(creations: Creations, hooks: Collection[str]) -> Iterator[str]:
    """Find the sums of gradients of one value, which autograd makes after a node has run."""
    for name, made in creations.items():
        # A view replayed for the sum is marked as well.
        if made.lineage.is_gradient_acc and made.replays is None and name not in hooks:
            yield name
    for autograd_node, group in groupby(creations, key=lambda name: creations[name].autograd_node):
        if autograd_node is None:
            continue
        names = list(group)
        for name in reversed(names):
            if not _is_sum(creations, name, frozenset(names)):
                break
            yield name


def _links_of_sums(
    creations: Creations, sums: frozenset[str], call_of: CallOf
) -> Iterator[tuple[str, Link]]:
    """Match sums to the values whose gradients they add; several nodes may be one sum."""
    parts = parts_of_sums(creations, [name for name in creations if name in sums])
    for name, value in summed_values(creations, sums.difference(*parts.values()), call_of):
        for part in (name, *parts.get(name, ())):
            yield part, Link(value, ForwardEvidence.GRADIENT_SUM)


def _is_sum(creations: Creations, name: str, same_run: frozenset[str]) -> bool:
    """Tell whether an addition adds gradients, at least one of them made earlier."""
    creation = creations[name]
    if {creation.target, creation.lineage.original_aten} != {"aten.add.Tensor"}:
        return False
    if not creation.inputs or not _is_at_grad_call(creation):
        return False
    made = [creations[value] for value in creation.inputs if value in creations]
    if len(made) < len(creation.inputs):
        return False
    if not all(each.autograd_node is not None or _is_at_grad_call(each) for each in made):
        return False
    return creation.feeds_twice or not same_run.issuperset(creation.inputs)


def _places(
    creations: Creations,
    links: Mapping[str, Link],
    sums: frozenset[str],
    known: Mapping[str, Lineage | None],
) -> dict[str, Lineage | None]:
    """Add to known places the forward op's lineage, for nodes that have no better one."""
    lineages = dict(known)
    for name, link in links.items():
        forward, known_place = creations[link.forward_node].lineage, lineages.get(link.forward_node)
        place = forward if known_place is None else forward.with_place_of(known_place)
        needs_place = (
            _is_at_grad_call(creations[name]) or name in sums or _lacks_source(creations[name])
        )
        lineages[name] = replace(place, is_gradient_acc=name in sums) if needs_place else None
    return lineages
