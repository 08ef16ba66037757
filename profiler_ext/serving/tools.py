"""The tools of the server: the arguments of each, as types with their descriptions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from profiler_ext.comparison.comparison import BY as COMPARED_BY
from profiler_ext.exporters.json_output.bounds import MIN_BUDGET
from profiler_ext.exporters.table_kinds import BY
from profiler_ext.records.vocabulary import Phase, Scope

_PHASES = tuple(phase.value for phase in Phase)
_SCOPES = (Scope.COMPILED.value, Scope.EAGER.value)
DEFAULT_BUDGET, MAX_BUDGET = 20_000, 200_000
MAX_LIMIT_S = 4 * 3600
_SIZE = "about so many bytes at most; cuts says what was left out"


def _doc(description: str, **more: Any) -> msgspec.Meta:
    return msgspec.Meta(description=description, **more)


def _one_of(description: str, values: Any) -> msgspec.Meta:
    return msgspec.Meta(description=description, extra_json_schema={"enum": list(values)})


_Session = Annotated[str, _doc("path of a session, as list_sessions tells it")]
_Top = Annotated[int, _doc("so many rows at most", ge=1)]
_Budget = Annotated[int, _doc(_SIZE, ge=MIN_BUDGET, le=MAX_BUDGET)]


class ToolArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Arguments of every tool."""

    budget: _Budget = DEFAULT_BUDGET


class ListSessions(ToolArguments, kw_only=True):
    """List the recorded profiling sessions that can be asked about."""


class OpenSession(ToolArguments, kw_only=True):
    """Look at a session: what was profiled, what to do first, where the time goes.

    Returns the step time breakdown, the gaps in attribution, the findings with most at stake, and
    the largest phases, source lines, modules, kernels and causes of idle time; and the peak of
    memory by kind, where it was recorded.
    """

    session: _Session
    top: _Top = 8


class ListFindings(ToolArguments, kw_only=True):
    """List what to do to make training steps quicker, what saves most first, with the figures."""

    session: _Session
    top: _Top = 20


class ReportTable(ToolArguments, kw_only=True):
    """Get one table of a session: device time by line, module, kernel, ... or idle time.

    ``by=memory`` is device memory, where it was recorded: bytes at the peak of each step, and bytes
    that the step allocates, by line, module, kind and owner.
    """

    session: _Session
    by: Annotated[str, _one_of("which table", BY)] = "line"
    top: _Top = 15
    depth: Annotated[int | None, _doc("of by=module: cut paths to so many names")] = None
    step: Annotated[int | None, _doc("only this profiled step")] = None
    rank: Annotated[int | None, _doc("only this rank")] = None
    phase: Annotated[str | None, _one_of("only this phase", [*_PHASES, None])] = None
    scope: Annotated[str | None, _one_of("only compiled or eager work", [*_SCOPES, None])] = None


class Explain(ToolArguments, kw_only=True):
    """Get all about one source line, module or kernel.

    Its time by phase and step, its kernels, what it is fused with, its roofline, its memory, the
    evidence, its findings and its generated code. A name that means several things is answered with
    candidates.
    """

    session: _Session
    name: Annotated[str, _doc("FILE:LINE, a module's path (layers.*.mlp for several), a kernel")]
    top: _Top = 8
    against: Annotated[str | None, _doc("a session from before: tells what changed")] = None


class Diff(ToolArguments, kw_only=True):
    """Compare two sessions: what got slower or quicker, with how sure that is, and memory."""

    base: Annotated[str, _doc("path of the session from before")]
    head: Annotated[str, _doc("path of the session to compare with it")]
    by: Annotated[str, _one_of("which table", COMPARED_BY)] = "line"
    top: _Top = 15


TOOLS: Mapping[str, type[ToolArguments]] = {
    "list_sessions": ListSessions,
    "open_session": OpenSession,
    "list_findings": ListFindings,
    "report": ReportTable,
    "explain": Explain,
    "diff": Diff,
}


class TryRemedies(ToolArguments, kw_only=True):
    """Run a training script as it is and with remedies, and measure which make steps quicker.

    The script runs many times, as the user and with its effects. Without remedies it is recorded
    first, and what its findings propose is tried.
    """

    folder: Annotated[str, _doc("folder to run in, below those that are served")]
    command: Annotated[
        list[str], _doc("the script and its arguments, or torchrun and its own", min_length=1)
    ]
    remedies: Annotated[list[str], _doc("names, as `profiler-ext try --list` has them")] = []
    output: Annotated[str, _doc("folder within `folder` for the session and what was measured")] = (
        "profile_out"
    )
    limit_s: Annotated[
        int, _doc("seconds; what has no verdict then is undecided", ge=10, le=MAX_LIMIT_S)
    ] = 600


RUNNING_TOOLS: Mapping[str, type[ToolArguments]] = {"try_remedies": TryRemedies}
"""Those that run a program; only for a server that was started with ``--allow-run``."""


def tools_of(may_run: bool) -> Mapping[str, type[ToolArguments]]:
    """Return the tools of a server."""
    return {**TOOLS, **RUNNING_TOOLS} if may_run else TOOLS


def description_of(tool: type[ToolArguments]) -> str:
    """Return a tool's description."""
    return inspect.cleandoc(tool.__doc__ or "")


def schema_of(tool: type[ToolArguments]) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments."""
    _, named = msgspec.json.schema_components((tool,))
    schema = dict(named[tool.__name__])
    return {name: value for name, value in schema.items() if name not in ("title", "description")}
