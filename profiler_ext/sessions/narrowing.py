"""Owns what is printed or written of a session: all of it, or one rank's, or one step's."""

from __future__ import annotations

from profiler_ext.attribution.one_step import of_step
from profiler_ext.records import Analysis
from profiler_ext.sessions.merging import MergedSession
from profiler_ext.sessions.session import Session


def narrowed(
    session: Session | MergedSession, rank: int | None = None, step: int | None = None
) -> tuple[Analysis, ...]:
    """Return the analyses of one rank or all of them, of one step or all of them.

    Args:
        session: of one rank, or of several.
        rank: the rank, ``None`` for all.
        step: number of the step, ``None`` for all.

    Returns:
        One analysis for each rank; of a step, for each rank that has it.

    Raises:
        UsageError: There is no such rank or step.
    """
    merged = session if isinstance(session, MergedSession) else MergedSession([session])
    chosen = merged.of_rank(rank)
    if step is None:
        return chosen
    having = [each for each in chosen if step in (one.number for one in each.steps)]
    if not having:
        _require(step, chosen[0])
    return tuple(of_step(each, step) for each in having)


def _require(step: int, analysis: Analysis) -> None:
    from profiler_ext.exporters.tables.selection import Selection

    Selection(step=step).require_step(analysis)
