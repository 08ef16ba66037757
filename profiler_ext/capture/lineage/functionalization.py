"""Lineage of what functionalization adds: ``copy_`` of mutated inputs, and replayed views.

Such a node has no stack, and its number means nothing. What it copies is the value of the op
that mutated, but only until the joint graph's passes: they take ``buffer.copy_(x)`` for a
no-op, and then ``x`` seems to be what mutated.

Torch gives them the line and the number of the view, but the modules and the call of whatever is
the next to read it (``torch/fx/proxy.py``, "Functionalization View Replay Annotation"). A view of a
view is made anew with both; the chain of those that are replayed is that of the first ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch.fx

from profiler_ext.capture.lineage.stage import Lineages, Stage
from profiler_ext.capture.traces.creations import Creations
from profiler_ext.capture.traces.metadata import lineage_of
from profiler_ext.records.evidence import Mechanism
from profiler_ext.records.lineage import Lineage
from profiler_ext.records.provenance import is_view_op
from profiler_ext.torch_compat import fx


def _own(node: torch.fx.Node) -> Lineage:
    return lineage_of(node.meta)


def find_mutations(
    gm: torch.fx.GraphModule, lineage_before: Callable[[torch.fx.Node], Lineage] = _own
) -> Lineages:
    """Return where each epilogue copy's value was made.

    Args:
        gm: a joint graph, or one that asks for no gradient, before its passes.

    Returns:
        The names of the copies, each with the lineage of what mutated.
    """
    copies = (n for n in gm.graph.nodes if fx.is_input_copy(n))
    return {copy.name: _source(copy.args[1], lineage_before) for copy in copies}


def mutated_input(stage: Stage) -> Lineages:
    """Say of an epilogue copy that it stands where the mutation does, with its number."""
    known = stage.joint.findings.mutated if stage.joint else {}
    copies = (n.name for n in stage.nodes if n.name in known and fx.is_input_copy(n))
    return {name: _copy_of(stage.lineages[name], known[name]) for name in copies}


def _copy_of(own: Lineage, mutating: Lineage) -> Lineage:
    lineage = replace(
        own.with_place_of(mutating),
        modules=mutating.modules or own.modules,
        source_fns=mutating.source_fns or own.source_fns,
        seq_nr=own.seq_nr if mutating.seq_nr is None else mutating.seq_nr,
        copied_from=mutating.copied_from or own.copied_from,
    )
    return lineage.by(Mechanism.MUTATED) if mutating.stack else lineage


def _source(value: torch.fx.Node, lineage_before: Callable[[torch.fx.Node], Lineage]) -> Lineage:
    """Where a value was made; what functionalization inserted says it of its input."""
    while not _is_known(lineage := lineage_before(value)) and value.all_input_nodes:
        value = value.all_input_nodes[0]
    return lineage


def _is_known(lineage: Lineage) -> bool:
    return bool(lineage.stack) or lineage.copied_from is not None


def find_replayed_views(creations: Creations) -> Lineages:
    """Return where replayed views were made first, by the names of the new ones."""
    replayed = [n for n, creation in creations.items() if creation.replays in creations]
    first = _original_views(creations, [n for n in replayed if is_view_op(creations[n].target)])
    places: dict[str, Lineage] = {}
    for name, was in first.items():  # what is made anew may be made anew once more
        places[name] = places.get(was) or creations[was].lineage
    return places


def _original_views(creations: Creations, views: list[str]) -> dict[str, str]:
    """Return which view each is made anew of: of a chain the last of what is replayed."""
    first = {name: creations[name].replays or "" for name in views}
    for name in reversed(views):
        for read, was in zip(creations[name].inputs, creations[first[name]].inputs, strict=False):
            if first.get(read) == first[name] and was in creations:
                first[read] = was
    return first


def replayed_view(stage: Stage) -> Lineages:
    """Say of a view that is made anew that it stands where it was made first."""
    known = stage.joint.findings.replayed_views if stage.joint else {}
    names = {node.name: stage.compilation.traced_name(node) or "" for node in stage.nodes if known}
    return {
        name: stage.lineages[name].with_place_of(known[traced])
        for name, traced in names.items()
        if traced in known
    }
