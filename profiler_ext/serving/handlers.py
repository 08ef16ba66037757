"""Answers tool calls: one JSON object, bounded, without control characters.

A recording's text comes from somebody else: it is passed on as values of fields, never interpreted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from profiler_ext.errors import ProfilerExtError, UnclearNameError, UsageError
from profiler_ext.exporters.explain import against, making
from profiler_ext.exporters.json_output import answers, bounds, comparison
from profiler_ext.exporters.json_output.documents import Answer, Failure, Sessions
from profiler_ext.exporters.table_kinds import table_by
from profiler_ext.isolation.failures import failure_detail
from profiler_ext.records.stored import known
from profiler_ext.serving import tools
from profiler_ext.serving.folders import Folders
from profiler_ext.sessions.comparing import diff


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, and whether the question failed."""

    document: dict[str, Any]
    is_error: bool = False


def answer_call(folders: Folders, name: str, arguments: Mapping[str, Any]) -> Reply:
    """Answer a call; an error is an answer with a sentence that says what to do."""
    budget = tools.DEFAULT_BUDGET
    try:
        call = _parsed(name, arguments)
        budget = call.budget
        return Reply(bounds.bounded(_HANDLERS[type(call)](folders, call), budget, clean=True))
    except ProfilerExtError as error:
        failure = Failure(slug=error.slug, message=str(error))
    except OSError as error:
        failure = Failure(slug="cannot_read", message=f"cannot go on: {error}")
    except Exception as error:
        detail = f"{failure_detail(error)}; this is a fault of profiler-ext's own: please report it"
        failure = Failure(slug="internal_error", message=detail)
    return Reply(bounds.bounded(failure, budget, clean=True), is_error=True)


def _parsed(name: str, arguments: Mapping[str, Any]) -> tools.ToolArguments:
    if name not in tools.TOOLS:
        raise UsageError(f"there is no tool {name!r}; ask one of {', '.join(tools.TOOLS)}")
    try:
        return msgspec.convert(dict(arguments), known(tools.TOOLS[name]), strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name} does not take that: {error}") from error


def _list_sessions(folders: Folders, _: tools.ListSessions) -> Answer:
    paths, is_partial = folders.sessions()
    return Sessions(
        folders=[str(root) for root in folders.roots], sessions=paths, is_partial=is_partial
    )


def _open_session(folders: Folders, call: tools.OpenSession) -> Answer:
    return answers.report_answer(folders.session(call.session), call.top)


def _list_findings(folders: Folders, call: tools.ListFindings) -> Answer:
    return answers.findings_answer(folders.session(call.session), call.top)


def _report(folders: Folders, call: tools.ReportTable) -> Answer:
    return answers.table_answer(
        folders.session(call.session),
        table_by(call.by),
        call.top,
        call.depth,
        step=call.step,
        rank=call.rank,
        phase=call.phase,
        scope=call.scope,
    )


def _explain(folders: Folders, call: tools.Explain) -> Answer:
    session = folders.session(call.session)
    before = call.against
    earlier = None if before is None else against.Earlier(before, folders.session(before).analyses)
    try:
        return making.explain(session, call.name, call.top, earlier)
    except UnclearNameError as error:
        return making.candidates(session, call.name, error)


def _diff(folders: Folders, call: tools.Diff) -> Answer:
    compared = diff(folders.session(call.base), folders.session(call.head))
    return comparison.comparison_answer(compared.comparison, call.by, call.top)


_HANDLERS: Mapping[type[tools.ToolArguments], Callable[[Folders, Any], Answer]] = {
    tools.ListSessions: _list_sessions,
    tools.OpenSession: _open_session,
    tools.ListFindings: _list_findings,
    tools.ReportTable: _report,
    tools.Explain: _explain,
    tools.Diff: _diff,
}
