"""Answers tool calls: one JSON object, bounded, without control characters.

A recording's text comes from somebody else: it is passed on as values of fields, never interpreted.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from profiler_ext.errors import ProfilerExtError, UnclearNameError, UsageError
from profiler_ext.exporters.explain import against, making
from profiler_ext.exporters.json_output import answers, bounds, comparison
from profiler_ext.exporters.json_output.documents import Answer, Failure, Sessions, TryAnswer
from profiler_ext.exporters.table_kinds import table_by
from profiler_ext.exporters.views.trials import measurements
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
        call = _parsed(tools.tools_of(folders.may_run), name, arguments)
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


def _parsed(
    known_tools: Mapping[str, type[tools.ToolArguments]], name: str, arguments: Mapping[str, Any]
) -> tools.ToolArguments:
    if name in tools.RUNNING_TOOLS and name not in known_tools:
        raise UsageError(f"{name} runs a program: start the server with --allow-run")
    if name not in known_tools:
        raise UsageError(f"there is no tool {name!r}; ask one of {', '.join(known_tools)}")
    try:
        return msgspec.convert(dict(arguments), known(known_tools[name]), strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name} does not take that: {error}") from error


def _list_sessions(folders: Folders, _: tools.ListSessions) -> Answer:
    paths, is_partial = folders.sessions()
    return Sessions(
        folders=[str(root) for root in folders.roots], sessions=paths, is_partial=is_partial
    )


def _open_session(folders: Folders, call: tools.OpenSession) -> Answer:
    measured = measurements(folders.trial(call.session))
    return answers.report_answer(folders.session(call.session), call.top, measured)


def _list_findings(folders: Folders, call: tools.ListFindings) -> Answer:
    measured = measurements(folders.trial(call.session))
    return answers.findings_answer(folders.session(call.session), call.top, measured)


def _report(folders: Folders, call: tools.ReportTable) -> Answer:
    session, kind = folders.session(call.session), table_by(call.by)
    if kind.is_optional:
        kind.require_rows(session.columns(kind.name))
    return answers.table_answer(
        session,
        kind,
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


def _try_remedies(folders: Folders, call: tools.TryRemedies) -> Answer:
    """Run ``profiler-ext try`` in a process of its own: standard output here is the protocol's."""
    folder = folders.folder(call.folder)
    output = (folder / call.output).resolve()
    if not output.is_relative_to(folder):
        raise UsageError(f"output {call.output!r} is not within {call.folder!r}")
    options = ["--limit", str(call.limit_s), "-o", str(output), "--format", "json"]
    words = [*options, *call.remedies, "--", *call.command]
    if any(each.startswith("-") for each in call.remedies):
        raise UsageError("remedies are names, as `profiler-ext try --list` has them")
    done = subprocess.run(
        [sys.executable, "-m", "profiler_ext", "try", *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UsageError(said[-1] if said else f"profiler-ext try exited with {done.returncode}")
    return msgspec.json.decode(done.stdout, type=known(TryAnswer))


_HANDLERS: Mapping[type[tools.ToolArguments], Callable[[Folders, Any], Answer]] = {
    tools.ListSessions: _list_sessions,
    tools.OpenSession: _open_session,
    tools.ListFindings: _list_findings,
    tools.ReportTable: _report,
    tools.Explain: _explain,
    tools.Diff: _diff,
    tools.TryRemedies: _try_remedies,
}
