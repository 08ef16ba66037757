"""The sessions that are explained in tests, and how one is asked."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from profiler_ext.exporters.explain.making import explain
from profiler_ext.exporters.json_output.explained import Explanation
from profiler_ext.records.analysis import Analysis
from profiler_ext.sessions.session import Session, load

FIXTURES = Path(__file__).parents[1] / "fixtures" / "h200"
GPT = FIXTURES / "findings" / "tuned_gpt.session.pt.trace.json.gz"
SUFFIX = "session.pt.trace.json.gz"
FINDINGS = FIXTURES / "findings"
SMALL = FIXTURES / "mlp.session.pt.trace.json.gz"
LAYOUT = FINDINGS / f"layout_conversion.{SUFFIX}"
LOADER = FIXTURES / "findings" / "data_loader.session.pt.trace.json.gz"


@cache
def loaded(path: Path) -> Session:
    return load(path)


def gpt() -> Session:
    return loaded(GPT)


def session_of(analysis: Analysis) -> Session:
    session = Session(analysis.recording)
    session.analysis = analysis
    return session


def of(name: str, session: Session | None = None) -> Explanation:
    return explain(session or gpt(), name, top=None)


def rows(table: Any) -> list[dict[str, Any]]:
    plain = table.astype(object).where(table.notna(), None)
    return [dict(row) for row in plain.to_dict("records")]


# What it says adds up
