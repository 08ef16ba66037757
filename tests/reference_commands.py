"""The pages of what a shell sees: commands with their help, variables, statuses, errors."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Sequence
from unittest import mock

from profiler_ext import cli, errors
from profiler_ext.cli.common import STATUSES, Parser
from profiler_ext.errors import ProfilerExtError, ProfilerExtWarning
from profiler_ext.kineto.source import Limit
from tests.reference_environment import OTHERS, OURS

COMMANDS = """# Commands

Commands print text, or with `--format json` [JSON](../answers.md). DIR is a folder that
`profiler-ext run` wrote, a folder of ranks, or a trace file. See [exit statuses](statuses.md). The
help of each command, as `profiler-ext COMMAND --help` prints it:"""

VARIABLES = """# Environment

Environment variables and their defaults. Each is read in the process that it concerns;
profiler_ext sets none of them but `KINETO_LOG_LEVEL`, and `PROFILER_EXT_TRY` for a child."""

STATUSES_PAGE = """# Exit statuses

`profiler-ext run` exits with the script's own status if that is not 0, and as one rank of several
(`WORLD_SIZE`) always: torchrun kills all other ranks when one fails, and they may be writing their
last checkpoint. A message says what could not be recorded. Otherwise commands exit with:"""

ERRORS = """# Errors

An error is one sentence: what was found, what was expected, what to do. Commands print its name,
listed here, in brackets before it; in Python it is the exception's `slug`. All errors are a
`profiler_ext.errors.ProfilerExtError`."""


_LIMITS = {
    "BYTES": "bytes of a file, unpacked; without it also a hundred times its packed size at most",
    "EVENTS": "events of a trace",
    "DEPTH": "how deep its JSON is nested",
    "DIGITS": "digits of one number",
    "STEPS": "steps, of all devices together",
    "NAME_BYTES": "bytes of an event's name, category or thread, and of any text in what we added",
}


def commands() -> str:
    """Return the section of each command."""
    with mock.patch.dict(os.environ, {"COLUMNS": "80"}):
        return "\n\n".join(map(_command, cli._COMMANDS))


def _command(name: str) -> str:
    module = cli._module(name)
    parser = Parser(
        prog=f"profiler-ext {name}", description=f"{module.HELP[0].upper()}{module.HELP[1:]}."
    )
    module.add_options(parser)
    return f"## {name}\n\n```text\n{parser.format_help().rstrip()}\n```"


def variables() -> str:
    """Return the tables of variables: ours, the limits of what is read, and those of others."""
    limits = [(each.variable, f"{each.value[1]:,}", _LIMITS[each.name]) for each in Limit]
    return "\n\n".join(
        (
            _section("Variables of profiler_ext", OURS),
            _section("Read limits", limits),
            _section("Variables of other tools", OTHERS),
        )
    )


def _section(title: str, rows: Sequence[tuple[str, str, str]]) -> str:
    head = (f"## {title}\n", "| variable | default | effect |", "| --- | --- | --- |")
    lines = (f"| `{name}` | {default} | {words} |" for name, default, words in rows)
    return "\n".join((*head, *lines))


def statuses() -> str:
    """Return the table of statuses."""
    lines = [f"| {status} | {words} |" for status, words in STATUSES.items()]
    return "\n".join(("| status | means |", "| --- | --- |", *lines))


def error_slugs() -> str:
    """Return the section of each error by its slug, and of the warnings."""
    return "\n\n".join((*_errors(), "## Warnings", *_warnings()))


def _errors() -> Iterator[str]:
    for each in _classes(ProfilerExtError):
        if "slug" in vars(each):
            yield f"## {each.slug}\n\n`{each.__name__}`. {_sentence(each)}"


def _warnings() -> Iterator[str]:
    for each in _classes(ProfilerExtWarning):
        yield f"### {each.__name__}\n\n{_sentence(each)}"


def _classes(base: type) -> list[type]:
    found = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, base)]
    return sorted(found, key=lambda each: inspect.getsourcelines(each)[1])


def _sentence(of: type) -> str:
    return (inspect.getdoc(of) or "").partition("\n\n")[0].replace("\n", " ")
