"""Owns the words of a gate: what came of a condition."""

from __future__ import annotations

from profiler_ext.records import Term


class Outcome(Term, page="words.md", title="outcome", columns=()):
    """What came of a condition, or of one of the things that it is held against."""

    PASSED = ("passed", "passed", "is no change beyond the limit")
    UNCLEAR = (
        "unclear",
        "unclear",
        "is inside the noise, but the noise is so wide that a change beyond the limit would be too",
        "record more steps, or more runs of each side, on a machine that does nothing else",
    )
    TOO_FEW = (
        "too_few",
        "too few",
        "cannot be told from noise, as there are too few steps or runs",
        "record at least five steps of each side, or several runs of each; compile time needs runs",
    )
    NOT_COMPARABLE = (
        "not_comparable",
        "not comparable",
        "is of steps that only the recording knows, which slows those of one side more than those "
        "of the other",
        "record with three or more steps before the recording, as `profiler-ext run` does",
    )
    FAILED = (
        "failed",
        "failed",
        "is a change beyond the noise whose best estimate is beyond the limit",
    )


WORST_LAST = tuple(Outcome)
