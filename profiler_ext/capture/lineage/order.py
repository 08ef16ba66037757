"""The lineage rules in order of precedence, with what is lost if one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import torch.fx

from profiler_ext.capture.lineage.compiled_autograd import (
    copied_by_autograd,
    copied_from_backward,
    line_of_hook,
    sum_of_copies,
)
from profiler_ext.capture.lineage.functionalization import mutated_input, replayed_view
from profiler_ext.capture.lineage.gradients import gradient_of, hook_on_gradient, sum_of_gradients
from profiler_ext.capture.lineage.links import is_forward, joint_graph
from profiler_ext.capture.lineage.nested_graphs import (
    body_of_call,
    called_graph,
    graph_of_call,
    place_of_run,
)
from profiler_ext.capture.lineage.node_rules import (
    argument_of_function,
    gradient_of_output,
    member_of_bucket,
    modules_of_the_user,
    overwritten_by_pass,
    own_metadata,
    random_op,
    region_of_graph,
    replaced_by_pattern,
)
from profiler_ext.capture.lineage.stage import Compilation, Lineages, Stage
from profiler_ext.capture.traces.metadata import lineage_of
from profiler_ext.records.lineage import Lineage
from profiler_ext.records.provenance import is_view_op
from profiler_ext.torch_compat import compiled_autograd, fx, inputs

# Each rule is a function from a stage to the lineages of some of its nodes. It sees what the rules
# before it found, and its answer replaces that: **of two rules that know a node, the later wins**.
# If a rule fails, its nodes would keep an earlier rule's line, which may be wrong: they lose it.

MayApply = Callable[[Stage, torch.fx.Node], bool]


def without_place(lineage: Lineage) -> Lineage:
    """Return a lineage without its place; the tags are torch's own."""
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
    """Return a lineage without modules."""
    return replace(lineage, modules=())


def without_link(lineage: Lineage) -> Lineage:
    """Return a lineage without its forward node."""
    return replace(lineage, forward_node=None, forward_evidence=None)


def without_names(lineage: Lineage) -> Lineage:
    """Return a lineage without its names in the joint graph."""
    return replace(without_link(lineage), joint_name=None)


def without_all(lineage: Lineage) -> Lineage:
    """Return a lineage without place and link."""
    return without_link(without_place(lineage))


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one rule provides."""

    gives: str  # what is lost without it, in the words of a gap
    without: Callable[[Lineage], Lineage]  # removes that from a lineage
    may_apply: MayApply  # asked if the rule failed
    findings: tuple[str, ...] = ()  # that it reads, in a joint graph or in Dynamo's
    is_of_it: Callable[[Lineage | None], bool] = lambda each: each is not None


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
    """A sum, a node with the line of ``autograd.grad``, or one with a line alone."""
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
        "where replayed views come from", without_place, _is_view, ("replayed_views",)
    ),
    "region_of_graph": Contribution(
        "where the nodes of a region come from", without_all, _is_of_region
    ),
    "gradient_of": Contribution(
        "where gradients come from that the function takes",
        without_place,
        _is_of_gradient,
        ("gradients",),
        lambda each: each is not None and not each.is_gradient_acc,
    ),
    "hook_on_gradient": Contribution(
        "where hooks on gradients come from", without_place, _is_of_gradient, ("hooks",)
    ),
    "sum_of_gradients": Contribution(
        "where sums of gradients come from",
        without_place,
        _is_of_gradient,
        ("gradients",),
        lambda each: each is not None and each.is_gradient_acc,
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
"""What each rule provides, by its name."""


def without_failed_rules(stage: Stage, failed: Iterable[Contribution]) -> Lineages:
    """Return the lineages of a stage without what failed rules provide."""
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
    """Tell whether a rule may apply to a node; if that fails too, it may."""
    with suppress(Exception):
        known = _finding_of(contribution, stage)
        if known is None:
            return contribution.may_apply(stage, node)
        names = (stage.compilation.traced_name(node) or "", node.name)
        return any(contribution.is_of_it(known.get(name)) for name in names)
    return True


def _finding_of(contribution: Contribution, stage: Stage) -> Mapping[str, Lineage | None] | None:
    """Return the finding that a rule reads by node name, if it was found."""
    if stage.joint is None or contribution.findings[:1] not in _BY_NAME:
        return None
    (finding,) = contribution.findings
    findings = stage.joint.findings
    by_name: Mapping[str, Lineage | None] = getattr(findings, finding)
    return None if finding in findings.lost else by_name


_BY_NAME = {("overwritten",), ("replayed_views",), ("gradients",), ("hooks",), ("mutated",)}


Rule = Callable[[Stage], Lineages]

TRACED: tuple[Rule, ...] = (
    # The node's own metadata: `y = x.sin()` keeps its line through every trace.
    own_metadata,
    # A pattern made it and kept nothing: `addmm`, of the `mm` and the `add` of `x @ w + b`.
    replaced_by_pattern,
    # To replay its numbers in backward, a dropout was wrapped: `graphsafe_run_with_rng_state`.
    random_op,
    # It serves one collective of a bucket, and says what the bucket's first one says.
    member_of_bucket,
    # `copy_` at the end of a graph: of the line that mutated, `self.seen.add_(1)`.
    mutated_input,
    # A removed no-op wrote its own line on it: `x.clone()` on `x.sin()`.
    overwritten_by_pass,
    # `y = x.view(6)` was replayed after `x.add_(1)`, and has the module of its next reader.
    replayed_view,
    # A separately compiled region was traced again: the outer graph has its lines.
    region_of_graph,
    # `torch.func.grad(f)(x)`: torch says the line that asks; it is of the op differentiated.
    gradient_of,
    # `y.register_hook(lambda g: g * 2)`: torch says that it is a sum; the hook's body knows.
    hook_on_gradient,
    # The gradients of a value with several uses are added up: of the line that made the value.
    sum_of_gradients,
)
"""What a node's metadata says, and what tracing and passes lost of it."""

ORDER: tuple[Rule, ...] = (
    *TRACED,
    # A gradient that comes from outside, an input: of the line that made the output.
    gradient_of_output,
    # `L['self'].layers.0` is the user's `layers.0`; without any, the module that was compiled.
    modules_of_the_user,
    # An input that is an argument: of the line of `def forward(self, x)`.
    argument_of_function,
    # In the joint graph a backward node is matched to its forward node: by `seq_nr`, or as found.
    joint_graph,
    # Compiled autograd copied it: `aot0_mul` is all that `mul` of that backward graph is.
    copied_by_autograd,
    # In the graph of a call, names and forward nodes lead through it: `cond/true_graph_0/sin`.
    called_graph,
    # The backward body of `torch.cond` stands on the call's line: the forward's body knows better.
    body_of_call,
    # Retraced, a `score_mod` stands on the line of `flex_attention`: Dynamo's graph knows better.
    graph_of_call,
    # A repeated region was traced on `layers.0`; this call of it is on `layers.3`.
    place_of_run,
)
"""All rules; those of one node's line, and those of its place in the model and the joint graph."""

COPIES: tuple[Rule, ...] = (
    # A hook on a gradient has a line of its own, without the frames of what calls it.
    line_of_hook,
    # `aot0_mul` is `mul` of the backward graph that AOTAutograd numbered 0.
    copied_from_backward,
    # `AccumulateGrad` adds two copies up: of their line, where that is one.
    sum_of_copies,
)
"""What compiled autograd's own graph is made of, while Dynamo hands it over; no torch says that."""


def find_lineages(
    nodes: Iterable[torch.fx.Node],
    compilation: Compilation,
    rules: Iterable[Rule] = ORDER,
    *,
    inputs: Iterable[torch.fx.Node] = (),
    prefix: str = "",
    caller: torch.fx.Node | None = None,
) -> Lineages:
    """Return the lineages of nodes of one graph; of an input only if a rule knows it."""
    stage = Stage(tuple(nodes), compilation, tuple(inputs), prefix=prefix, caller=caller)
    failed: list[Contribution] = []
    for rule in rules if stage.nodes or stage.inputs else ():
        gives = CONTRIBUTIONS[rule.__name__]
        contributed = compilation.try_run(gives.gives, rule, stage)
        if contributed is None or not stage.lost.isdisjoint(gives.findings):
            failed.append(gives)
        if contributed is None and rule is own_metadata:  # what the others add to
            contributed = {node.name: Lineage() for node in stage.nodes}
        stage = stage.with_lineages(contributed or {})
    return without_failed_rules(stage, failed) if failed or stage.lost else stage.lineages
