"""Callbacks for training libraries and loggers, with the metrics that every logger gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profiler_ext.sessions.session import Session

ARTIFACTS = "profiler_ext"
"""The prefix of the files, tables and figures."""
TABLES = ("coverage", "findings")


def figures(session: Session) -> dict[str, float]:
    """Return the step time breakdown in milliseconds, by category."""
    breakdown = session.coverage()
    what = breakdown.scope.fillna("") + "/" + breakdown.category.fillna("")
    per_step = breakdown.per_step_ns.astype(float).groupby(what).sum() / 1e6
    named = {f"{ARTIFACTS}/{str(name).rstrip('/')}_ms": float(ms) for name, ms in per_step.items()}
    return {**named, f"{ARTIFACTS}/step_ms": float(per_step.sum())}
