"""Owns the table of findings: one row for each, what has most at stake first."""

from __future__ import annotations

import msgspec
import numpy as np
import pandas as pd

from profiler_ext.exporters.tables.arrays import FLOAT, TEXT, INT, Dtype, frame, gather
from profiler_ext.exporters.tables.selection import Selection
from profiler_ext.findings import Finding, find
from profiler_ext.records import Analysis

_PLACE: tuple[tuple[str, Dtype], ...] = (
    ("file", TEXT),
    ("line", INT),
    ("code", TEXT),
    ("module", TEXT),
    ("kernel", TEXT),
)


def findings(analysis: Analysis, *, rank: int | None = None) -> pd.DataFrame:
    """Return what to do first, what has most at stake first.

    Args:
        analysis: what attribution found.
        rank: only this rank.

    Returns:
        One row for each finding: the rule, what is the matter, the place, the time at stake and
        what it is counted for, how sure that is, the figures as JSON, and the remedy.
    """
    is_there = Selection(rank=rank).has_rank_of(analysis)
    return _findings_frame(find(analysis).found if is_there else ())


def _findings_frame(found: tuple[Finding, ...]) -> pd.DataFrame:
    every = np.arange(len(found))
    columns = {
        "rank": gather([each.rank for each in found], every, INT),
        "rule": gather([each.rule for each in found], every, TEXT),
        "what": gather([each.what for each in found], every, TEXT),
    }
    columns |= {
        name: gather([getattr(each.where, name) for each in found], every, dtype)
        for name, dtype in _PLACE
    }
    columns |= {
        "compile_id": gather([each.where.graph for each in found], every, TEXT),
        "at_stake_ns": gather([each.at_stake_ns for each in found], every, INT),
        "of_ns": gather([each.of_ns for each in found], every, INT),
        "at_stake_fraction": gather([each.fraction for each in found], every, FLOAT),
        "stake": gather([each.stake.value for each in found], every, TEXT),
        "sureness": gather([each.sureness.value for each in found], every, TEXT),
        "why": gather([msgspec.json.encode(each.why).decode() for each in found], every, TEXT),
        "remedy": gather([each.remedy for each in found], every, TEXT),
        "shared_with": gather([", ".join(each.shared_with) for each in found], every, TEXT),
    }
    return frame(columns)
