"""Owns what is lost where a mechanism fails: what it alone gives, of the nodes that it may know.

Of two rules that know a node the later wins, so where a rule fails its nodes still have what the
earlier ones say, which may be another line. Such nodes lose it; all others keep what they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import torch.fx

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.links import is_forward
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.capture.traces.metadata import lineage_of
from profiler_ext.recall.views import is_view_op
from profiler_ext.records import Lineage
from profiler_ext.torch_compat import compiled_autograd, fx, inputs

MayApply = Callable[[Stage, torch.fx.Node], bool]


def without_place(lineage: Lineage) -> Lineage:
    """Return a lineage that does not say where its node comes from; its tags are torch's own."""
    return replace(
        lineage,
        original_aten=None,
        seq_nr=None,
        stack=(),
        modules=(),
        source_fns=(),
        annotation=(),
        is_gradient_acc=False,
        copied_from=None,
        copied_call=None,
        mechanism=None,
    )


def without_modules(lineage: Lineage) -> Lineage:
    """Return a lineage that does not say its node's modules."""
    return replace(lineage, modules=())


def without_link(lineage: Lineage) -> Lineage:
    """Return a lineage that does not say which forward node its node differentiates."""
    return replace(lineage, forward_node=None, forward_evidence=None)


def without_names(lineage: Lineage) -> Lineage:
    """Return a lineage without its node's name in the joint graph, and without its link."""
    return replace(without_link(lineage), joint_name=None)


def without_all(lineage: Lineage) -> Lineage:
    """Return a lineage that says neither a place nor a link."""
    return without_link(without_place(lineage))


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one rule gives.

    Attributes:
        gives: what is lost without it, as a gap says it.
        without: takes that from a lineage.
        may_apply: tells whether the rule may know a node; asked where it failed.
        findings: what it reads that other mechanisms find, in a joint graph or in Dynamo's.
        is_of_it: tells whether it says what was found of a node.
    """

    gives: str
    without: Callable[[Lineage], Lineage]
    may_apply: MayApply
    findings: tuple[str, ...] = ()
    is_of_it: Callable[[Lineage | None], bool] = lambda found: found is not None


def _any(stage: Stage, node: torch.fx.Node) -> bool:
    return True


def _is_made(stage: Stage, node: torch.fx.Node) -> bool:
    at_joint = stage.joint.findings.replaced if stage.joint else {}
    return node.name in at_joint or node.name in stage.compilation.replaced.get(node.graph, {})


def _is_wrapped(stage: Stage, node: torch.fx.Node) -> bool:
    return fx.carried_op(node) is not None


def _is_copy(stage: Stage, node: torch.fx.Node) -> bool:
    return fx.is_input_copy(node)


def _is_view(stage: Stage, node: torch.fx.Node) -> bool:
    return is_view_op(fx.target_name(node.target)) or _is_replacement(stage, node)


def _is_of_gradient(stage: Stage, node: torch.fx.Node) -> bool:
    """A sum, what has the line that asks for a gradient, and what says its line alone."""
    own = lineage_of(node.meta)
    is_bare = not own.source_fns and not own.modules
    needs_place = own.is_gradient_acc or fx.calls_autograd_grad(own.source_fns) or is_bare
    return needs_place or _is_replacement(stage, node)


def _is_bucket(stage: Stage, node: torch.fx.Node) -> bool:
    rows = stage.compilation.made_from(node)
    return any(fx.is_collective(row.lineage.original_aten) for row in rows)


def _is_nested(stage: Stage, node: torch.fx.Node) -> bool:
    return bool(stage.prefix)


def _is_replacement(stage: Stage, node: torch.fx.Node) -> bool:
    return _is_made(stage, node) or _is_wrapped(stage, node)


def _is_of_region(stage: Stage, node: torch.fx.Node) -> bool:
    return stage.joint is not None and stage.joint.region is not None


def _is_of_body(stage: Stage, node: torch.fx.Node) -> bool:
    return stage.caller is not None and not is_forward(lineage_of(stage.caller.meta))


def _is_carried(stage: Stage, node: torch.fx.Node) -> bool:
    caller = stage.caller
    return caller is not None and fx.source_fns(node.meta) == fx.source_fns(caller.meta)


def _is_run(stage: Stage, node: torch.fx.Node) -> bool:
    """A node of a region, or one that a pass put in the place of a region's call."""
    dynamo, joint, own = stage.dynamo, stage.joint, stage.lineages[node.name]
    if dynamo is None:
        return False
    if "runs" in dynamo.lost:
        return stage.caller is not None or joint is None or node.name not in joint.names
    is_nested = stage.caller is not None and bool(dynamo.runs.of_call)
    return is_nested or (own.source_fns, own.stack) in dynamo.runs.of_node


def _is_output_gradient(stage: Stage, node: torch.fx.Node) -> bool:
    return node.op == "placeholder" and inputs.output_of_gradient(node) is not None


def _is_argument(stage: Stage, node: torch.fx.Node) -> bool:
    return node.op == "placeholder" and inputs.argument_of(node) is not None


def _is_of_backwards(stage: Stage, node: torch.fx.Node) -> bool:
    return stage.dynamo is not None and bool(stage.dynamo.copy_sources)


def _is_copied(stage: Stage, node: torch.fx.Node) -> bool:
    copied = (compiled_autograd.copied_node(each.name) for each in (node, *node.users))
    return any(each is not None for each in copied)


def _is_no_copy(stage: Stage, node: torch.fx.Node) -> bool:
    return compiled_autograd.copied_node(node.name) is None


CONTRIBUTIONS: Mapping[str, Contribution] = {
    "own_metadata": Contribution("all that torch says of the nodes", without_all, _any),
    "replaced_by_pattern": Contribution(
        "where nodes come from that passes made", without_all, _is_made
    ),
    "random_op": Contribution(
        "where random ops come from that are run again", without_all, _is_wrapped, ("random",)
    ),
    "member_of_bucket": Contribution(
        "where bucketed collectives come from", without_all, _is_bucket
    ),
    "mutated_input": Contribution(
        "where mutations of inputs come from", without_place, _is_copy, ("mutated",)
    ),
    "overwritten_by_pass": Contribution(
        "where nodes come from whose origin a pass overwrote", without_all, _any, ("overwritten",)
    ),
    "replayed_view": Contribution(
        "where replayed views come from", without_place, _is_view, ("made_anew",)
    ),
    "region_of_graph": Contribution(
        "where the nodes of a region come from", without_all, _is_of_region
    ),
    "gradient_of": Contribution(
        "where gradients come from that the function takes",
        without_place,
        _is_of_gradient,
        ("gradients",),
        lambda found: found is not None and not found.is_gradient_acc,
    ),
    "hook_on_gradient": Contribution(
        "where hooks on gradients come from", without_place, _is_of_gradient, ("hooks",)
    ),
    "sum_of_gradients": Contribution(
        "where sums of gradients come from",
        without_place,
        _is_of_gradient,
        ("gradients",),
        lambda found: found is not None and found.is_gradient_acc,
    ),
    "gradient_of_output": Contribution(
        "where gradients of outputs come from", without_all, _is_output_gradient, ("outputs",)
    ),
    "modules_of_the_user": Contribution("modules", without_modules, _any, ("modules",)),
    "argument_of_function": Contribution(
        "where arguments come from", without_all, _is_argument, ("arguments",)
    ),
    "joint_graph": Contribution("names in the joint graph, and forward nodes", without_names, _any),
    "copied_by_autograd": Contribution(
        "where copies of compiled autograd's come from", without_all, _is_of_backwards
    ),
    "called_graph": Contribution(
        "names and forward nodes of nested graphs", without_names, _is_nested
    ),
    "body_of_call": Contribution(
        "where nodes of backward bodies come from", without_all, _is_of_body, ("bodies",)
    ),
    "graph_of_call": Contribution(
        "where nodes of carried graphs come from", without_place, _is_carried, ("inlined",)
    ),
    "place_of_run": Contribution(
        "which call of a region nodes are of", without_place, _is_run, ("runs",)
    ),
    "line_of_hook": Contribution("lines of hooks on gradients", without_all, _is_no_copy),
    "copied_from_backward": Contribution(
        "where copies of compiled autograd's come from", without_all, _is_copied
    ),
    "sum_of_copies": Contribution("where sums of copies come from", without_all, _is_no_copy),
}
"""What each rule of ``order.py`` gives, by its name."""


def without_failed_rules(stage: Stage, failed: Iterable[Contribution]) -> Lineages:
    """Return the lineages of a stage without what failed rules give.

    Args:
        stage: nodes, and what all other rules found.
        failed: what those rules give that failed, or that lack what they read.
    """
    lineages = dict(stage.lineages)
    nodes = {node.name: node for node in (*stage.nodes, *stage.inputs) if node.name in lineages}
    for each in failed:
        for name, node in nodes.items():
            if _may_apply_to(each, stage, node):
                lineages[name] = each.without(lineages[name])
    for node in stage.nodes:
        if stage.compilation.is_of_failed_pattern(node):
            lineages[node.name] = without_all(lineages[node.name])
        elif "links" in stage.lost:
            lineages[node.name] = without_link(lineages[node.name])
    return lineages


def _may_apply_to(contribution: Contribution, stage: Stage, node: torch.fx.Node) -> bool:
    """Ask whether a rule may know a node: what cannot be asked may be known."""
    with suppress(Exception):
        known = _finding_of(contribution, stage)
        if known is None:
            return contribution.may_apply(stage, node)
        names = (stage.compilation.traced_name(node) or "", node.name)
        return any(contribution.is_of_it(known.get(name)) for name in names)
    return True


def _finding_of(contribution: Contribution, stage: Stage) -> Mapping[str, Lineage | None] | None:
    """Return what a rule reads by names of nodes, where that was found; ``None`` of any other."""
    if stage.joint is None or contribution.findings[:1] not in _BY_NAME:
        return None
    (finding,) = contribution.findings
    found = stage.joint.findings
    by_name: Mapping[str, Lineage | None] = getattr(found, finding)
    return None if finding in found.lost else by_name


_BY_NAME = {("overwritten",), ("made_anew",), ("gradients",), ("hooks",), ("mutated",)}
