"""Owns the order in which the mechanisms win that tell where a node comes from.

Each rule is a function from a stage to the lineages of some of its nodes. It sees what the rules
before it found, and what it says replaces that: **of two rules that know a node, the later wins**.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch.fx

from profiler_ext.capture.lineage.argument import argument_of_function
from profiler_ext.capture.lineage.autograd_copy import copied_from_backward
from profiler_ext.capture.lineage.autograd_hook import line_of_hook
from profiler_ext.capture.lineage.autograd_sum import sum_of_copies
from profiler_ext.capture.lineage.bodies import body_of_call
from profiler_ext.capture.lineage.bucket import member_of_bucket
from profiler_ext.capture.lineage.carried import graph_of_call
from profiler_ext.capture.lineage.compiled_autograd import copied_by_autograd
from profiler_ext.capture.lineage.gradient_hooks import hook_on_gradient
from profiler_ext.capture.lineage.gradients import gradient_of, sum_of_gradients
from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.links import joint_graph
from profiler_ext.capture.lineage.losses import CONTRIBUTIONS, Contribution, without_failed_rules
from profiler_ext.capture.lineage.made_anew import replayed_view
from profiler_ext.capture.lineage.mutated import mutated_input
from profiler_ext.capture.lineage.nested_calls import called_graph
from profiler_ext.capture.lineage.output_gradient import gradient_of_output
from profiler_ext.capture.lineage.overwritten import overwritten_by_pass
from profiler_ext.capture.lineage.own import modules_of_the_user, own_metadata
from profiler_ext.capture.lineage.random_op import random_op
from profiler_ext.capture.lineage.region import region_of_graph
from profiler_ext.capture.lineage.repeated import place_of_run
from profiler_ext.capture.lineage.replaced import replaced_by_pattern
from profiler_ext.capture.lineage.stage import Compilation, Stage
from profiler_ext.records import Lineage

Rule = Callable[[Stage], Lineages]

TRACED: tuple[Rule, ...] = (
    # What torch says of the node: `y = x.sin()` keeps its line through every trace.
    own_metadata,
    # A pattern made it and kept nothing: `addmm`, of the `mm` and the `add` of `x @ w + b`.
    replaced_by_pattern,
    # To replay its numbers in backward, a dropout was wrapped: `graphsafe_run_with_rng_state`.
    random_op,
    # It serves one collective of a bucket, and says what the bucket's first one says.
    member_of_bucket,
    # `copy_` at the end of a graph: of the line that mutated, `self.seen.add_(1)`.
    mutated_input,
    # A no-op was removed beside it, and wrote its own line on it: `x.clone()` beside `x.sin()`.
    overwritten_by_pass,
    # `y = x.view(6)` was made anew after `x.add_(1)`, and says the module that reads it next.
    replayed_view,
    # A region that is compiled by itself was traced anew: the graph around it knows.
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
    # In the joint graph a backward node is led to its forward node: by `seq_nr`, or as found there.
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
    """Return where nodes of one graph come from; of an input only if a rule knows it.

    What a rule gives that fails is lost, and what no other rule gives stays.

    Args:
        nodes: call nodes of one graph.
        compilation: what is known of its compile.
        rules: the rules to ask, the strongest last.
        inputs: inputs of that graph.
        prefix: what names a nested graph.
        caller: the node of the outermost graph that calls a nested one.
    """
    stage = Stage(tuple(nodes), compilation, tuple(inputs), prefix=prefix, caller=caller)
    failed: list[Contribution] = []
    for rule in rules if stage.nodes or stage.inputs else ():
        gives = CONTRIBUTIONS[rule.__name__]
        found_lineages = compilation.alone(gives.gives, rule, stage)
        if found_lineages is None or not stage.lost.isdisjoint(gives.findings):
            failed.append(gives)
        if found_lineages is None and rule is own_metadata:  # what the others add to
            found_lineages = {node.name: Lineage() for node in stage.nodes}
        stage = stage.with_lineages(found_lineages or {})
    return without_failed_rules(stage, failed) if failed or stage.lost else stage.lineages
