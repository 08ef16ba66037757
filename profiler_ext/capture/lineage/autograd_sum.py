"""Owns the lineage of the sums that compiled autograd's graph makes of gradients that it copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.records import Lineage, LineEvidence, Mechanism
from profiler_ext.torch_compat import compiled_autograd


def sum_of_copies(stage: Stage) -> Lineages:
    """Say of a sum of gradients that it stands where all of them do, if that is one place."""
    lineages = dict(stage.lineages)
    for node in stage.nodes:
        own = lineages.get(node.name)
        is_known = own is None or own.stack or own.copied_call
        gradients = () if is_known else compiled_autograd.summed_gradients(node)
        if own is not None and gradients:
            of_sum = replace(own, is_gradient_acc=True)
            lineages[node.name] = _sum(of_sum, [lineages.get(n.name, of_sum) for n in gradients])
    return lineages


def _sum(own: Lineage, summed: Sequence[Lineage]) -> Lineage:
    places = {(each.stack, each.modules) for each in summed}
    stack, modules = places.pop()
    if places or not stack:
        return own
    return replace(
        own,
        stack=stack,
        modules=modules,
        joint=_one(each.joint for each in summed),
        copied_call=_one(each.copied_call for each in summed),
        mechanism=Mechanism.GRADIENT_SUM,
        evidence=LineEvidence.GRADIENT,
    )


def _one(values: Iterable[str | None]) -> str | None:
    first, *others = set(values)
    return None if others else first
