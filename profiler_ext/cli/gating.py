"""Owns what ``profiler-ext diff`` does with conditions: its options, outputs and exit status."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.cli.choices import DEFAULT, ABOVE_LIMIT, TOO_FEW
from profiler_ext.cli.printing import print_line
from profiler_ext.errors import OutputError, UsageError

if TYPE_CHECKING:
    from profiler_ext.gate.records import Gate
    from profiler_ext.sessions.comparing import ComparedSessions

_SUMMARY = "GITHUB_STEP_SUMMARY"
_CHECKOUT = "GITHUB_WORKSPACE"


def add_gate(parser: argparse.ArgumentParser) -> None:
    """Let the user say what fails a comparison, and who shall be told."""
    group = parser.add_argument_group("a gate, for CI")
    group.add_argument(
        "--fail-if",
        dest="conditions",
        action="append",
        metavar="CONDITION",
        help=f"exit with {ABOVE_LIMIT} if it holds: 'module layers.*.mlp backward > +5%%'; may be given "
        "several times (docs/gate.md)",
    )
    group.add_argument(
        "--too-few",
        choices=("fail", "warn"),
        default="fail",
        help=f"what to do where there are too few steps or runs to tell: exit with {TOO_FEW}, or "
        f"say so and pass {DEFAULT}",
    )
    group.add_argument("--junit", type=Path, metavar="FILE", help="write a JUnit report too")
    group.add_argument(
        "--github",
        action="store_true",
        help=f"print annotations for GitHub Actions too, and add a summary to ${_SUMMARY}",
    )


def check_options(options: argparse.Namespace) -> None:
    """Refuse options that do not go together, and conditions that are none, before all work.

    Raises:
        UsageError: They do not; or a condition is not understood.
    """
    from profiler_ext.gate.conditions import parse

    if not options.conditions:
        if options.junit or options.github or options.too_few != "fail":
            raise UsageError(
                "--junit, --github and --too-few are about conditions, and there is none; give "
                "one, such as --fail-if 'total > +5%'"
            )
        return
    for text in options.conditions:
        parse(text)
    if options.github and options.format not in ("text", "md"):
        raise UsageError(
            f"--github prints annotations on standard output, where --format {options.format} has "
            "its own; choose text or md"
        )


def gate_of(compared: ComparedSessions, options: argparse.Namespace) -> Gate | None:
    """Return what came of the conditions; ``None`` where there is none.

    Args:
        compared: the two sides.
        options: the command line.

    Raises:
        UsageError: Nothing of either side is what a condition means.
    """
    return compared.gate(*options.conditions) if options.conditions else None


def report_gate(gate: Gate, compared: ComparedSessions, options: argparse.Namespace) -> int:
    """Write what was asked for besides what is printed.

    Args:
        gate: what came of the conditions.
        compared: the two sides.
        options: the command line.

    Returns:
        The exit status.

    Raises:
        OutputError: A file cannot be written.
    """
    is_allowed = options.too_few == "warn"
    if options.junit:
        from profiler_ext.exporters.gate_junit import write_junit

        write_junit(gate, options.junit, is_too_few_allowed=is_allowed)
    if options.github:
        _print_github(gate, compared, options, is_allowed)
    return _status(gate, is_allowed)


def _print_github(
    gate: Gate, compared: ComparedSessions, options: argparse.Namespace, is_allowed: bool
) -> None:
    from profiler_ext.exporters.gate_github import workflow_commands
    from profiler_ext.exporters.gate_markdown import gate_markdown

    root = Path(os.environ.get(_CHECKOUT) or Path.cwd())
    commands = workflow_commands(gate, compared.comparison, root, is_too_few_allowed=is_allowed)
    for command in commands:
        print_line(command)
    if summary := os.environ.get(_SUMMARY):
        text = gate_markdown(gate) + "\n" + compared.report(options.by, options.top, "md")
        try:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise OutputError(f"cannot add to ${_SUMMARY} ({summary}): {error.strerror}") from error


def _status(gate: Gate, is_allowed: bool) -> int:
    from profiler_ext.gate.words import Outcome

    outcomes = {result.outcome for result in gate.results}
    if Outcome.FAILED in outcomes:
        return ABOVE_LIMIT
    undecided = {Outcome.TOO_FEW, Outcome.NOT_COMPARABLE} & set(outcomes)
    return TOO_FEW if undecided and not is_allowed else 0
