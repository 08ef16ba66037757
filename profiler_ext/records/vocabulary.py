"""Owns the closed vocabularies: one word for one thing, everywhere.

Members are their own text, so they serialise, compare and print as plain strings.
"""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Which part of a training step did the work."""

    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"
    GRADIENT_ACCUMULATION = "gradient_accumulation"
    OPTIMIZER = "optimizer"
    OTHER = "other"


class SiteKind(StrEnum):
    """What a call site launches."""

    TRITON = "triton"
    TRITON_TEMPLATE = "triton_template"
    USER_TRITON = "user_triton"
    CPP = "cpp"
    EXTERN = "extern"


class LaunchKind(StrEnum):
    """What a launch is: a call site's kind, or what runs outside compiled graphs."""

    TRITON = "triton"
    TRITON_TEMPLATE = "triton_template"
    USER_TRITON = "user_triton"
    CPP = "cpp"
    EXTERN = "extern"
    EAGER = "eager"
    COMMUNICATION = "communication"
    MEMCPY = "memcpy"
    MEMSET = "memset"


class Level(StrEnum):
    """How far a launch, or a part of it, was led back."""

    LINE = "line"
    OP = "op"
    NONE = "none"


class CacheState(StrEnum):
    """How a compiled graph came to be in this process."""

    MISS = "miss"
    FX_HIT = "fx_hit"
    AOT_HIT = "aot_hit"
    BYPASS = "bypass"
    ATTACHED = "attached"


LINE_PHASE_CORRECTED = "line_phase_corrected"
"""The ledger's category of what was led to a line, though torch's backward tag leaked onto it."""


class LineEvidence(StrEnum):
    """The truth that a node's source line came from (best first)."""

    COMPILED = "compiled_here"
    FRESH_GRAPH = "fresh_fx_graph"
    FRESH_DYNAMO = "fresh_dynamo_graph"
    RECORDED = "recorded_line_still_stands"
    ATTACHED = "stored_record_of_equal_graph"
    TOLD = "generated_code_comments"
    STALE = "recorded_line_changed"
    GRADIENT = "line_of_summed_gradient"
    EAGER_BACKWARD = "eager_backward_node"
    ABSENT = "no_stack"


class ForwardEvidence(StrEnum):
    """The rule that tied a node to the forward node it differentiates, or why there is none."""

    SEQ_NR = "seq_nr"
    SEQ_NR_SOURCE = "seq_nr_and_source"
    SEQ_NR_DECOMPOSED = "seq_nr_of_decomposed_op"
    OF_CALL = "link_of_call"
    STACK = "stack"
    AUTOGRAD_NODE = "autograd_node"
    AUTOGRAD_NODE_OF_BODY = "autograd_node_of_body"
    SEED_OF_GRADIENT = "seed_of_gradient"
    GRADIENT_OF_OUTPUT = "gradient_of_output"
    AUTOGRAD_SEQUENCE = "autograd_sequence_number"
    RECOMPUTED = "recomputed_forward"
    GRADIENT_SUM = "sum_of_gradients"
    MUTATION = "mutation"
    HOOK = "hook"
    REPLACED = "replaced_forward"
    NOT_LINKED = "not_linked"


class SiteEvidence(StrEnum):
    """The rule that tied a launch to its place."""

    CALL_ORDER = "call_order"
    CALL_ORDER_TOLD = "call_order_in_generated_code"
    CALL_ORDER_OP = "call_order_and_op"
    REPLAY_ORDER = "replay_order"
    REPLAY_KERNELS = "replay_order_and_learnt_kernels"
    REPLAY_FAMILIES = "replay_order_and_kernels_of_the_op"
    STORED_KERNELS = "order_and_kernels_of_another_run"
    RUNNER_COPY = "graph_runner_input_copy"
    RUNNER_SEED = "graph_runner_seed"
    LAUNCHING_OP = "launching_op"
    AUTOGRAD_SEQUENCE = "autograd_sequence_number"
    OPTIMIZER_RANGE = "optimizer_range"
    SHARDING_RANGE = "sharding_range"
    NAME = "device_event_name"


class GapReason(StrEnum):
    """Why a launch, or a part of it, is not attributed."""

    NO_LAUNCH_CALL = "no_launch_call"
    NO_LAUNCHING_OP = "no_launching_op"
    GRAPH_NOT_CAPTURED = "graph_not_captured"
    COMPILED_IN_CHILD = "compiled_in_child_process"
    GRAPH_AMBIGUOUS = "graph_ambiguous"
    ALIGNMENT_MISMATCH = "alignment_mismatch"
    AMBIGUOUS_EXTERN_RUN = "ambiguous_extern_run"
    WRAPPER_GLUE = "wrapper_glue"
    AUTOTUNING = "autotuning"
    COMPILING = "compiling"
    NO_SOURCE_LINE = "no_source_line"
    STALE_SOURCE_LINE = "stale_source_line"
    TRACED_GRADIENT = "traced_gradient_not_linked"
    COMPILED_AUTOGRAD = "compiled_autograd"
    EAGER_BACKWARD = "eager_backward_node"
    AOT_INDUCTOR = "aot_inductor"
    CALL_SITES_UNVERIFIED = "call_sites_unverified"
    RECORD_UNREADABLE = "record_unreadable"
    PROFILER_TAKEN = "profiler_taken"
    RECORD_NOT_STORED = "record_not_stored"
    CAPTURE_FAILED = "capture_failed"
    PRIVATE_NAME = "private_name"
