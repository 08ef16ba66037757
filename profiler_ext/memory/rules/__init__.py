"""The list of rules about memory, one file each: a new rule is a file, and a row here."""

from collections.abc import Sequence
from typing import Final

from profiler_ext.memory.recommendations import (
    MIN_FRACTION,
    MemoryFindings,
    MemoryRule,
    judge,
    merged,
)
from profiler_ext.memory.rules import (
    batch_size,
    checkpointing,
    chunked_loss,
    fragmented,
    kept_gradients,
    optimizer,
    weight_copies,
)
from profiler_ext.records.analysis import Analysis

__all__ = ["MIN_FRACTION", "RULES", "find", "find_on_ranks"]

RULES: Final[tuple[MemoryRule, ...]] = (
    checkpointing.RULE,
    chunked_loss.RULE,
    kept_gradients.RULE,
    weight_copies.RULE,
    optimizer.TEMPORARIES,
    optimizer.EIGHT_BIT,
    optimizer.SHARDED,
    fragmented.RULE,
    batch_size.RULE,
)


def find(analysis: Analysis) -> MemoryFindings:
    """Return what to do about the peak of memory, by all rules."""
    return analysis.derived.once("memory findings", lambda: judge(analysis, RULES))


def find_on_ranks(analyses: Sequence[Analysis]) -> MemoryFindings:
    """Return what to do about the peak of memory on any of several ranks, by all rules."""
    return merged([find(analysis) for analysis in analyses])
