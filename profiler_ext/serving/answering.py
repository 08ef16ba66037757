"""Owns how a question is answered: as one JSON object, bounded, without characters that steer.

What a recording holds is somebody else's text: it is handed on as values of fields, and nothing
in it is ever taken for anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from profiler_ext.errors import ProfilerExtError, UnclearNameError, UsageError
from profiler_ext.exporters.answers import making
from profiler_ext.exporters.answers.bounds import bounded
from profiler_ext.exporters.answers.documents import Answer, Failure, Sessions
from profiler_ext.exporters.comparison_json import comparison_answer
from profiler_ext.exporters.explain.against import Earlier
from profiler_ext.exporters.explain.making import candidates, explain
from profiler_ext.exporters.table_kinds import table_by
from profiler_ext.isolation.failures import failure_detail
from profiler_ext.records.known_types import known
from profiler_ext.serving.folders import Folders
from profiler_ext.serving.questions import (
    TOOLS,
    USUAL_BUDGET,
    Diff,
    Explain,
    ListFindings,
    ListSessions,
    OpenSession,
    Question,
    ReportTable,
)
from profiler_ext.sessions.comparing import diff


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, and whether the question failed."""

    document: dict[str, Any]
    is_error: bool = False


def ask(folders: Folders, name: str, arguments: Mapping[str, Any]) -> Told:
    """Answer a question; what fails is an answer too, with a sentence that says what to do.

    Args:
        folders: what may be read.
        name: the tool's name.
        arguments: its arguments.

    Returns:
        The answer, within its budget.
    """
    budget = USUAL_BUDGET
    try:
        question = _question(name, arguments)
        budget = question.budget
        return Told(bounded(_ANSWERS[type(question)](folders, question), budget, clean=True))
    except ProfilerExtError as error:
        failure = Failure(slug=error.slug, message=str(error))
    except OSError as error:
        failure = Failure(slug="cannot_read", message=f"cannot go on: {error}")
    except Exception as error:
        detail = f"{failure_detail(error)}; this is a fault of profiler-ext's own: please report it"
        failure = Failure(slug="own_fault", message=detail)
    return Told(bounded(failure, budget, clean=True), is_error=True)


def _question(name: str, arguments: Mapping[str, Any]) -> Question:
    if name not in TOOLS:
        raise UsageError(f"there is no tool {name!r}; ask one of {', '.join(TOOLS)}")
    try:
        return msgspec.convert(dict(arguments), known(TOOLS[name]), strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name} does not take that: {error}") from error


def _list_sessions(folders: Folders, _: ListSessions) -> Answer:
    found, is_partial = folders.sessions()
    return Sessions(
        folders=[str(root) for root in folders.roots], sessions=found, is_partial=is_partial
    )


def _open_session(folders: Folders, question: OpenSession) -> Answer:
    return making.report_answer(folders.session(question.session), question.top)


def _list_findings(folders: Folders, question: ListFindings) -> Answer:
    return making.findings_answer(folders.session(question.session), question.top)


def _report(folders: Folders, question: ReportTable) -> Answer:
    return making.table_answer(
        folders.session(question.session),
        table_by(question.by),
        question.top,
        question.depth,
        step=question.step,
        rank=question.rank,
        phase=question.phase,
        scope=question.scope,
    )


def _explain(folders: Folders, question: Explain) -> Answer:
    session = folders.session(question.session)
    before = question.against
    earlier = None if before is None else Earlier(before, folders.session(before).analyses)
    try:
        return explain(session, question.name, question.top, earlier)
    except UnclearNameError as error:
        return candidates(session, question.name, error)


def _diff(folders: Folders, question: Diff) -> Answer:
    compared = diff(folders.session(question.base), folders.session(question.head))
    return comparison_answer(compared.comparison, question.by, question.top)


_ANSWERS: Mapping[type[Question], Callable[[Folders, Any], Answer]] = {
    ListSessions: _list_sessions,
    OpenSession: _open_session,
    ListFindings: _list_findings,
    ReportTable: _report,
    Explain: _explain,
    Diff: _diff,
}
