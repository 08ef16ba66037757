"""The named rules by which something is attributed; each is a value in the tables."""

from __future__ import annotations

from profiler_ext.records.vocabulary import Term


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
        "is that of the node around a region, which is compiled by itself and traced again",
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
        "is the one that torch printed next to the node in its generated code",
        "compile it again with `profiler-ext run --recompile` to have the full stack",
    )


class LineEvidence(Term, page="evidence.md", title="line", columns=("attribution.evidence",)):
    """The truth that a node's source line came from (best first)."""

    COMPILED = (
        "compiled_here",
        "compiled here",
        "was noted while this process compiled the graph",
    )
    CALLED = (
        "call_of_graph",
        "line of the graph's call",
        "is where the program called the compiled graph, whose own nodes have no line of it",
    )
    FRESH_GRAPH = (
        "fresh_fx_graph",
        "traced here",
        "is in the FX graph that this process traced before the cache answered",
    )
    FRESH_DYNAMO = (
        "fresh_dynamo_graph",
        "traced here by Dynamo",
        "is in this process's Dynamo graph, which is equal to the recorded one",
    )
    RECORDED = (
        "recorded_line_still_stands",
        "recorded, and still there",
        "was recorded when the graph was compiled, and the file still has its text",
    )
    ATTACHED = (
        "stored_record_of_equal_graph",
        "stored for an equal graph",
        "is that of the run that stored the graph under the cache key which the trace names; "
        "other source that gives an equal graph shares the key",
        "record the step with profiler_ext to have its own",
    )
    CODE_COMMENTS = (
        "generated_code_comments",
        "from generated code",
        "is in the comments of torch's generated code: the graph was cached without capture",
        "compile it again with `profiler-ext run --recompile` to have more",
    )
    STALE = (
        "recorded_line_changed",
        "source changed",
        "was recorded when the graph was compiled, and the file has another text there now",
        "clear Inductor's cache folder, which `profiler-ext doctor` names",
    )
    GRADIENT = (
        "line_of_summed_gradient",
        "of a summed gradient",
        "is that of the gradients which compiled autograd sums up there",
    )
    EAGER_BACKWARD = (
        "eager_backward_node",
        "backward of eager work",
        "is not kept: compiled autograd copied the backward of what ran eagerly",
        "compile the forward too",
    )
    ABSENT = (
        "no_stack",
        "no line noted",
        "was never recorded: torch has no stack for the node",
        "look at it by module or op",
    )


class EagerEvidence(
    Term, page="evidence.md", title="line of eager work", columns=("attribution.evidence",)
):
    """The truth that the line of an eager launch came from."""

    RAN = (
        "line_that_ran",
        "running at the launch",
        "ran in the thread that launched it, from before the op began until after it was over",
    )
    RAN_FORWARD = (
        "line_of_forward_op",
        "of its forward op",
        "ran when the forward op was launched that has the same sequence number of autograd's",
    )
    RAN_LAST_USE = (
        "line_of_last_gradient",
        "of the gradient before it",
        "is that of the op whose backward gave the gradient that is added to others, of the same "
        "value or of a parameter, which the engine does at once",
    )
    RAN_BACKWARD_CALL = (
        "line_that_called_backward",
        "that called backward",
        "ran in the thread of the forward, which waited for the backward: no op asked for it, "
        "as where ranks reduce gradients",
    )


class ForwardEvidence(
    Term,
    page="evidence.md",
    title="link",
    columns=("attribution.forward_evidence", "by_link.forward_evidence"),
):
    """The rule that tied a node to the forward node it differentiates, or why there is none."""

    SEQ_NR = (
        "seq_nr",
        "autograd's number",
        "is the one forward node with the same sequence number in the joint graph",
    )
    SEQ_NR_SOURCE = (
        "seq_nr_and_source",
        "autograd's number, and the source",
        "is the one of several with the same sequence number that has the same function, module "
        "or stack",
    )
    SEQ_NR_DECOMPOSED = (
        "seq_nr_of_decomposed_op",
        "autograd's number, of a decomposed op",
        "is the last of the nodes that one op was decomposed into: the one that yields its value; "
        "of a padded product the product",
    )
    OF_CALL = (
        "link_of_call",
        "that of the call",
        "is that of the call whose inner graph the node runs in",
    )
    STACK = (
        "stack",
        "the same stack",
        "is the last forward node with the same stack and modules, where no number decides: a view "
        "that autograd makes again",
    )
    AUTOGRAD_NODE = (
        "autograd_node",
        "the autograd node that ran",
        "was made with the autograd node that ran when the backward node was traced",
    )
    AUTOGRAD_NODE_OF_CALL = (
        "autograd_node_of_call",
        "the autograd node that ran, by its call",
        "is the last node of the call in which the autograd node was made that ran: under vmap an "
        "op may leave no node of its name, and which of the call's nodes it is stays open",
    )
    AUTOGRAD_NODE_OF_BODY = (
        "autograd_node_of_body",
        "the autograd node that ran, in a body",
        "is the same within the body of a higher-order op, which torch traces again",
    )
    SEED_OF_GRADIENT = (
        "seed_of_gradient",
        "the gradient's first value",
        "is the op whose gradient the value is handed to, of a gradient that the model takes",
    )
    GRADIENT_OF_OUTPUT = (
        "gradient_of_output",
        "a gradient that is handed in",
        "yields the output whose gradient comes from outside of the graph",
    )
    AUTOGRAD_SEQUENCE = (
        "autograd_sequence_number",
        "autograd's number in the trace",
        "is the eager forward op with the same sequence number in the trace, on the thread that "
        "the backward names where several have it",
    )
    RECOMPUTED = (
        "recomputed_forward",
        "forward that runs again",
        "is the node itself, which the backward runs again: it differentiates nothing",
    )
    GRADIENT_SUM = (
        "sum_of_gradients",
        "sum of gradients",
        "made the value whose gradients are summed; where none is named, it is used first there",
    )
    MUTATION = (
        "mutation",
        "copy into an input",
        "is none: the node writes a new value into an input, and differentiates nothing",
    )
    HOOK = (
        "hook",
        "a hook on a gradient",
        "is none: the node is of a hook, which has its own line",
    )
    REPLACED = (
        "replaced_forward",
        "replaces a forward node",
        "is the node itself: a pass of the compiler put it in the place of forward nodes",
    )
    NOT_LINKED = (
        "not_linked",
        "not linked",
        "is not known: no rule found it",
        "report the recording if it is a model's own op; the phase is right all the same",
    )


class SiteEvidence(Term, page="evidence.md", title="launch", columns=("launches.evidence",)):
    """The rule that tied a launch to its place."""

    CALL_ORDER = (
        "call_order",
        "order of the calls",
        "has the place of its call in the order of the generated wrapper's calls",
    )
    CALL_ORDER_IN_CODE = (
        "call_order_in_generated_code",
        "order in the generated code",
        "has its place in the order of the calls that the generated code shows",
        "compile it again with `profiler-ext run --recompile` to have more",
    )
    CALL_ORDER_OP = (
        "call_order_and_op",
        "order of the calls, and the op",
        "has the place of its call in that order, and the operator of a library call agrees",
    )
    REPLAY_ORDER = (
        "replay_order",
        "order of the replay",
        "has its place in the order in which a CUDA graph replays the calls",
    )
    REPLAY_KERNELS = (
        "replay_order_and_learnt_kernels",
        "order of the replay, and known kernels",
        "has its place in that order, and the call was seen to run this kernel before the replay",
    )
    REPLAY_FAMILIES = (
        "replay_order_and_kernels_of_the_op",
        "order of the replay, and the op's kernels",
        "has its place in that order, and as many calls begin there as the op's kernels show",
    )
    STORED_KERNELS = (
        "order_and_kernels_of_another_run",
        "order, and kernels of an earlier run",
        "has its place in that order, and an earlier run saw the call run this kernel",
    )
    CAPTURED_NODE = (
        "captured_node",
        "node of the program's CUDA graph",
        "has the place of the call that a CUDA graph of the program captured as this node",
    )
    RUNNER_COPY = (
        "graph_runner_input_copy",
        "an input copied for a replay",
        "copies an input to where a CUDA graph reads it",
    )
    RUNNER_SEED = (
        "graph_runner_seed",
        "a seed set for a replay",
        "sets the seed or offset of the random numbers that a CUDA graph draws",
    )
    LAUNCHING_OP = (
        "launching_op",
        "the op that launched it",
        "was launched while this op ran, outside of compiled graphs",
    )
    ENCLOSING_OP = (
        "enclosing_op",
        "the op around its launch call",
        "was launched while this op ran on its thread; the trace's external ids, which are those "
        "of correlations, do not confirm it",
    )
    AUTOGRAD_SEQUENCE = (
        "autograd_sequence_number",
        "the op, and autograd's number",
        "was launched by a backward op whose forward has the same sequence number",
    )
    MODULE_CALL = (
        "module_call",
        "inside a module's forward",
        "was launched while a module was called",
    )
    COMPILED_FUNCTION = (
        "compiled_function",
        "inside a compiled function",
        "was launched while a compiled function ran, outside its graphs",
    )
    DIFFERENTIATED = (
        "differentiated_op",
        "the op, and its backward",
        "was launched by an op that a backward differentiates: it has the same sequence number",
    )
    PYTHON_CALL = (
        "python_call",
        "inside a call of Python",
        "was launched while a checkpoint ran its forward again, as Python's recorded calls say",
    )
    OPTIMIZER_RANGE = (
        "optimizer_range",
        "inside the optimizer's step",
        "was launched while an optimizer's step ran",
    )
    SHARDING_RANGE = (
        "sharding_range",
        "inside FSDP's work",
        "was launched while FSDP gathered parameters or reduced gradients",
    )


class ShareEvidence(Term, page="evidence.md", title="share", columns=("launches.share_evidence",)):
    """The rule that split a launch's time among the nodes that its kernel computes."""

    MEASURED = (
        "measured_inside",
        "measured inside the kernel",
        "was measured by `profiler-ext inside`, as parts of the kernel's time in the step",
    )
    MODEL = (
        "cost_model",
        "by the cost model",
        "is estimated from the bytes and operations of each node",
        "measure it: `profiler-ext inside KERNEL -- train.py`",
    )
    EVEN = (
        "even_split",
        "evenly",
        "is the same for each, as nothing is known of what each takes",
    )
