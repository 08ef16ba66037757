"""The text of a gold file: what a session shows, in sections.

Nanoseconds of single launches stand in a section of their own, the last, so that a recording
made anew of the same model changes little else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pandas as pd

from profiler_ext.records.analysis import Analysis
from profiler_ext.sessions.merging import MergedSession
from profiler_ext.sessions.session import Session
from profiler_ext.sessions.session_tables import SessionTables
from tests.gold.cells import ABSENT, at, cells, lines, rows
from tests.gold.launches import Launches, times
from tests.handmade import pieces

TIMES = "times"
CODE = ["file", "line", "function", "code"]


def session_text(session: Session) -> str:
    """Return all that a session of one process shows."""
    analysis, launches = session.analysis, Launches(session)
    sections = {
        "session": _facts(analysis),
        "notes": analysis.notes,
        "gaps of the recording": _gaps(analysis),
        **_sums(session),
        "graphs": _graphs(session),
        "step time breakdown: step device scope category ns": _step_time_breakdown(analysis),
        "idle: step device pieces ns cause, what the CPU did": _idle(analysis),
        **_texts(session, launches),
        "launches": launches.lines(),
        f"{TIMES}: launch step ns est_bytes est_flops, ns of each row": times(session),
    }
    return _text(sections)


def captured_text(session: Session) -> str:
    """Return what a session shows that is the same each time that the same step is recorded."""
    launches = Launches(session)
    sections = {
        "gaps of the recording": _gaps(session.analysis),
        "graphs": _graphs(session),
        **_texts(session, launches),
        "launches": launches.lines(with_percents=False),
    }
    return _text(sections)


def merged_text(merged: MergedSession) -> str:
    """Return what the session of several ranks shows that is of no rank alone."""
    sections = {
        "clocks": map(repr, merged.clocks),
        "notes": merged.notes,
        **_sums(merged),
        "by_line": lines(merged.by_line()),
        "skew": lines(merged.skew()),
        "by_module": lines(merged.by_module()),
        "by_kernel": lines(merged.by_kernel()),
    }
    return _text(sections)


def _gaps(analysis: Analysis) -> list[str]:
    return [cells((gap.reason, gap.detail)) for gap in analysis.recording.gaps]


def _graphs(session: Session) -> list[str]:
    return lines(session.graphs().drop(columns="compile_ns"))


def _texts(session: Session, launches: Launches) -> dict[str, Iterable[str]]:
    return {
        "lines": _code(session.attribution()),
        "stacks": launches.stacks.lines(),
        "long names": launches.names.lines(),
    }


def _text(sections: dict[str, Iterable[str]]) -> str:
    parts = ["\n".join([f"[{title}]", *found]) for title, found in sections.items()]
    return "\n\n".join(parts) + "\n"


def _facts(analysis: Analysis) -> list[str]:
    settings = analysis.recording.settings
    return [
        f"torch {settings.torch_version}, rank {settings.rank} of {settings.world_size}, "
        f"steps end with {settings.step_source}",
        f"{len(analysis.launches)} launches, {len(analysis.shares)} rows",
        *(f"step {step.number}: {step.wall_ns} ns" for step in analysis.steps),
    ]


def _sums(session: SessionTables) -> dict[str, list[str]]:
    found = {
        "coverage": session.coverage(),
        "communication": session.communication(),
        "by_link": session.by_link(),
        "by_phase": session.by_phase(),
    }
    return {name: lines(table) for name, table in found.items() if len(table)}


def _step_time_breakdown(analysis: Analysis) -> list[str]:
    return [
        cells((line.step, line.device, line.scope, line.category, line.duration_ns))
        for line in analysis.breakdown
    ]


def _idle(analysis: Analysis) -> list[str]:
    sums: dict[tuple[int, int, str, str], list[int]] = defaultdict(list)
    for piece in pieces(analysis):
        key = (piece.step, piece.device, piece.cause, piece.cpu_activity or ABSENT)
        sums[key].append(piece.duration_ns)
    return [cells((*key[:2], len(ns), sum(ns), *key[2:])) for key, ns in sorted(sums.items())]


def _code(table: pd.DataFrame) -> list[str]:
    known = table[CODE].dropna(subset="file").drop_duplicates().sort_values(CODE)
    return [cells((at(file, line), *rest)) for file, line, *rest in rows(known)]
