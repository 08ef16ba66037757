"""Lineage of what functionalization adds: ``copy_`` of mutated inputs, and replayed views."""

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
    """Return the lineage of the op that mutated, for each epilogue copy of a joint graph."""
    # Before the joint passes: those remove ``buffer.copy_(x)`` as a no-op, and leave ``x``.
    copies = (n for n in gm.graph.nodes if fx.is_input_copy(n))
    return {copy.name: _source(copy.args[1], lineage_before) for copy in copies}


def mutated_input(stage: Stage) -> Lineages:
    """Give an epilogue copy, which has no stack, the place and number of the mutation."""
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
    """The lineage of a value; of what functionalization inserted, that of its input."""
    while not _is_known(lineage := lineage_before(value)) and value.all_input_nodes:
        value = value.all_input_nodes[0]
    return lineage


def _is_known(lineage: Lineage) -> bool:
    return bool(lineage.stack) or lineage.copied_from is not None


def find_replayed_views(creations: Creations) -> Lineages:
    """Return the lineage of the original of each replayed view."""
    replayed = [n for n, creation in creations.items() if creation.replays in creations]
    first = _original_views(creations, [n for n in replayed if is_view_op(creations[n].target)])
    places: dict[str, Lineage] = {}
    for name, was in first.items():  # a replayed view may be replayed again
        places[name] = places.get(was) or creations[was].lineage
    return places


def _original_views(creations: Creations, views: list[str]) -> dict[str, str]:
    """Return the original of each replayed view; in a chain, the one at the same place."""
    first = {name: creations[name].replays or "" for name in views}
    for name in reversed(views):
        for read, was in zip(creations[name].inputs, creations[first[name]].inputs, strict=False):
            if first.get(read) == first[name] and was in creations:
                first[read] = was
    return first


def replayed_view(stage: Stage) -> Lineages:
    """Give a replayed view the place of its original."""
    # Torch gives it the original's line, but the module and call of the next node that reads it
    # (``torch/fx/proxy.py``, "Functionalization View Replay Annotation").
    known = stage.joint.findings.replayed_views if stage.joint else {}
    names = {node.name: stage.compilation.traced_name(node) or "" for node in stage.nodes if known}
    return {
        name: stage.lineages[name].with_place_of(known[traced])
        for name, traced in names.items()
        if traced in known
    }
