"""Owns the list of rules, one file each: a new rule is a file, and a row here."""

from typing import Final

from profiler_ext.findings.rule import Rule
from profiler_ext.findings.rules import (
    allocating,
    autotuning,
    compiling,
    data_loader,
    dtype_conversion,
    eager_beside_compiled,
    exposed_communication,
    far_from_roofline,
    first_step,
    fp32_matmul,
    graph_break,
    late_rank,
    launch_bound,
    layout_conversion,
    pageable_copy,
    recompilation,
    recompute,
    repeated_reduction,
    replay_copy,
    synchronisation,
    uncached,
    unlike_siblings,
)

RULES: Final[tuple[Rule, ...]] = (
    launch_bound.RULE,
    synchronisation.RULE,
    data_loader.RULE,
    pageable_copy.RULE,
    allocating.RULE,
    exposed_communication.RULE,
    repeated_reduction.RULE,
    late_rank.RULE,
    graph_break.RULE,
    fp32_matmul.RULE,
    far_from_roofline.RULE,
    eager_beside_compiled.RULE,
    autotuning.RULE,
    recompute.RULE,
    dtype_conversion.RULE,
    layout_conversion.RULE,
    replay_copy.RULE,
    unlike_siblings.RULE,
    compiling.RULE,
    first_step.RULE,
    recompilation.RULE,
    uncached.RULE,
)
