"""The recordings that comparisons are tried on, each read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from profiler_ext.comparison.sides import RunOfRanks
from profiler_ext.sessions.session import load

H200 = Path(__file__).parents[1] / "fixtures" / "h200"


@cache
def recorded(name: str) -> RunOfRanks:
    """Return a recorded session, ``findings/data_loader`` say, as a run."""
    return RunOfRanks(name, (load(H200 / f"{name}.session.pt.trace.json.gz").analysis,))
