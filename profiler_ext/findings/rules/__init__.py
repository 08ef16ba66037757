"""Owns the list of rules, one file each: a new rule is a file, and a row here."""

from typing import Final

from profiler_ext.findings.rule import Rule
from profiler_ext.findings.rules import (
    first_step,
    fp32_matmul,
    launch_bound,
    pageable_copy,
    uncached,
)

RULES: Final[tuple[Rule, ...]] = (
    launch_bound.RULE,
    fp32_matmul.RULE,
    pageable_copy.RULE,
    first_step.RULE,
    uncached.RULE,
)
