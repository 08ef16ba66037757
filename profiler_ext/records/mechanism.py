"""Owns the named ways by which a node's source line was found; each is a value in the tables."""

from __future__ import annotations

from profiler_ext.records.term import Term


class Mechanism(
    Term,
    page="evidence.md",
    title="mechanism",
    columns=("launches.mechanism", "attribution.mechanism", "by_mechanism.mechanism"),
):
    """By which way a node's source line was found; ``capture/lineage/order.py`` has their order."""

    OWN = (
        "own_stack",
        "its own stack",
        "is the one that torch kept on the node through every trace",
    )
    REPLACED = (
        "replaced_by_pattern",
        "of what a pattern replaced",
        "is that of the node which a pass put this one in the place of",
    )
    RANDOM = (
        "random_op",
        "of the random call it wraps",
        "is that of the random call which torch wrapped to replay its numbers in backward",
    )
    BUCKET = (
        "bucket",
        "of a collective in a bucket",
        "is that of the collective which this node of a bucket serves",
    )
    MUTATED = (
        "mutated_input",
        "of what mutated an input",
        "is that of the op whose mutation of an input the node writes back",
    )
    OVERWRITTEN = (
        "overwritten_by_pass",
        "as before a pass overwrote it",
        "is the node's own, on which a pass wrote that of a no-op which it removed",
    )
    REGION = (
        "compiled_region",
        "of the graph around a region",
        "is that of the node around a region, which is compiled by itself and traced anew",
    )
    GRADIENT = (
        "gradient_of",
        "of what it differentiates",
        "is that of the op which the node differentiates: torch gives a gradient that is taken "
        "inside the compiled function the line that asks for it",
    )
    HOOK = (
        "hook_on_gradient",
        "of a hook on a gradient",
        "is that of the op in a hook on a gradient, which torch marks as a sum of gradients",
    )
    GRADIENT_SUM = (
        "sum_of_gradients",
        "of the value whose gradients it sums",
        "is where the value is made whose gradients the node adds up",
    )
    COPIED = (
        "compiled_autograd",
        "of what compiled autograd copied",
        "is that of the backward node which compiled autograd copied",
    )
    BODY = (
        "body_of_higher_order_op",
        "of the forward's body",
        "is that of the op in the forward's body, as in a branch of torch.cond",
    )
    CARRIED = (
        "graph_of_call",
        "of a graph that a call carries",
        "is that of the op in a graph which its call carries, as in a score_mod",
    )
    ARGUMENT = (
        "argument",
        "of an argument",
        "is the one that names the compiled function's argument",
    )
    GRADIENT_OF_OUTPUT = (
        "gradient_of_output",
        "of the output it is the gradient of",
        "is where the output is made whose gradient the input is",
    )
    PRINTED = (
        "generated_code",
        "of torch's printed graph",
        "is the one that torch printed beside the node in its generated code",
        "compile it once more with `profiler-ext run --recompile`, and the whole stack is known",
    )
