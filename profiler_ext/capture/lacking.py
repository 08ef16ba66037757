"""Owns what capture says at its start of this torch: what it lacks, and where it differs."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_ext.records import Gap, GapReason
from profiler_ext.torch_compat import behaviour, names, points


def problems() -> tuple[str, ...]:
    """Return what this torch lacks that nothing can be captured without; empty when it has all.

    Looking imports every module that holds a place, so a name that one module binds from
    another is bound before any of them is wrapped.
    """
    wrapped = [(point, point.problem()) for point in points.ALL]
    read = (name.problem() for name in names.ALL if name.is_vital)
    vital = (problem for point, problem in wrapped if point.is_vital)
    return tuple(problem for problem in (*vital, *read) if problem is not None)


def gaps(*, is_compiling: bool = True) -> tuple[Gap, ...]:
    """Return a gap for each other name that this torch lacks, with what is lost without it.

    And one for each behaviour in which it is not what its version says, and where it was not tried.

    Args:
        is_compiling: the program has imported torch's compiler, and what is in it counts.
    """
    if not is_compiling:
        missing_names = names.missing_names(is_loaded=True)
        return (*(Gap(GapReason.PRIVATE_NAME, missing_reason) for missing_reason in missing_names), *_of_version())
    lost = (*names.missing_names(), *_unseen())
    lacking = (Gap(GapReason.PRIVATE_NAME, missing_names) for missing_names in lost)
    differs = (Gap(GapReason.TORCH_BEHAVIOUR, text) for text in behaviour.contradictions())
    return (*lacking, *differs, *_of_version())


def _of_version() -> Iterator[Gap]:
    """Say that this torch was not tried, if it was not."""
    if (said := behaviour.untested_version()) is not None:
        yield Gap(GapReason.TORCH_BEHAVIOUR, said)


def _unseen() -> Iterator[str]:
    """Each place that capture does without, and what is lost by it."""
    for point in points.ALL:
        if not point.is_vital and (problem := point.problem()) is not None:
            yield f"{problem}; lost is {point.purpose}"
