"""Callbacks of training libraries and loggers of runs, with the metrics that every logger draws.

Each file is imported by whoever wants it, and names the pip command where its library is missing.
"""

from __future__ import annotations

from profiler_ext.sessions.session import Session

ARTIFACTS = "profiler_ext"
"""What the files, tables and figures are logged under."""
TABLES = ("coverage", "findings")


def figures(session: Session) -> dict[str, float]:
    """Return the ledger in milliseconds a step, by what the time went to."""
    ledger = session.coverage()
    what = ledger.scope.fillna("") + "/" + ledger.category.fillna("")
    per_step = ledger.per_step_ns.astype(float).groupby(what).sum() / 1e6
    named = {f"{ARTIFACTS}/{str(name).rstrip('/')}_ms": float(ms) for name, ms in per_step.items()}
    return {**named, f"{ARTIFACTS}/step_ms": float(per_step.sum())}
