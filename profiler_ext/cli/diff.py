"""``profiler-ext diff``: compares two runs, or several of each side; a gate for CI."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.cli.common import (
    ABOVE_LIMIT,
    DEFAULT,
    TOO_FEW,
    Parser,
    add_format,
    console,
    print_answer,
    print_line,
    print_message,
    write,
)
from profiler_ext.errors import OutputError, UsageError

if TYPE_CHECKING:
    from profiler_ext.comparison.gate import Gate
    from profiler_ext.sessions.comparing import ComparedSessions


_SUMMARY = "GITHUB_STEP_SUMMARY"
_CHECKOUT = "GITHUB_WORKSPACE"
_TOP = 15


def add_gate(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what fails a comparison, and how it is reported."""
    group = parser.add_argument_group("CI gate")
    group.add_argument(
        "--fail-if",
        dest="conditions",
        action="append",
        metavar="CONDITION",
        help=f"exit with {ABOVE_LIMIT} if it holds: 'module layers.*.mlp backward > +5%%'; "
        "repeatable",
    )
    group.add_argument(
        "--too-few",
        choices=("fail", "warn"),
        default="fail",
        help=f"with too few steps or runs to decide: exit with {TOO_FEW}, or warn and pass "
        f"{DEFAULT}",
    )
    group.add_argument("--junit", type=Path, metavar="FILE", help="also write a JUnit report")
    group.add_argument(
        "--github",
        action="store_true",
        help=f"also print GitHub Actions annotations, and add a summary to ${_SUMMARY}",
    )


def check_options(options: argparse.Namespace) -> None:
    """Raise UsageError before any work where options or conditions are not valid."""
    from profiler_ext.comparison.conditions import parse

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
    """Evaluate the conditions; ``None`` without any; raises UsageError."""
    return compared.gate(*options.conditions) if options.conditions else None


def report_gate(gate: Gate, compared: ComparedSessions, options: argparse.Namespace) -> int:
    """Write the gate's reports in the formats that were chosen."""
    is_allowed = options.too_few == "warn"
    if options.junit:
        from profiler_ext.exporters.diff.gate import write_junit

        write_junit(gate, options.junit, is_too_few_allowed=is_allowed)
    if options.github:
        _print_github(gate, compared, options, is_allowed)
    return _status(gate, is_allowed)


def _print_github(
    gate: Gate, compared: ComparedSessions, options: argparse.Namespace, is_allowed: bool
) -> None:
    from profiler_ext.exporters.diff.gate import workflow_commands
    from profiler_ext.exporters.diff.markdown import gate_markdown

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
    from profiler_ext.comparison.gate import Outcome

    outcomes = {result.outcome for result in gate.results}
    if Outcome.FAILED in outcomes:
        return ABOVE_LIMIT
    undecided = {Outcome.TOO_FEW, Outcome.NOT_COMPARABLE} & set(outcomes)
    return TOO_FEW if undecided and not is_allowed else 0


HELP = "compare two runs, or several per side, line by line"


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    from profiler_ext.comparison.comparison import BY
    from profiler_ext.exporters.table_kinds import PRINT_FORMATS

    parser.add_argument(
        "sessions",
        type=Path,
        nargs="*",
        metavar="BASE HEAD",
        help="session folders or traces: the baseline, and the run to compare with it",
    )
    for side, words in (("base", "baseline runs"), ("head", "runs to compare with them")):
        parser.add_argument(
            f"--{side}",
            type=Path,
            nargs="+",
            metavar="DIR",
            help=f"instead: several {words}",
        )
    parser.add_argument(
        "--by", choices=BY, default="line", metavar="WHAT", help=f"compare by %(choices)s {DEFAULT}"
    )
    parser.add_argument(
        "--top", type=int, metavar="N", help=f"number of rows (default: {_TOP}, in JSON all)"
    )
    add_format(parser, [each.name for each in PRINT_FORMATS])
    _add_output(parser)
    add_gate(parser)
    parser.show_examples(
        ("before and after an edit", "profiler-ext diff before after"),
        ("for a pull request", "profiler-ext diff before after --format md"),
        ("a gate for CI", "profiler-ext diff before after --fail-if 'total > +5%'"),
        ("three runs against three", "profiler-ext diff --base a1 a2 a3 --head b1 b2 b3"),
    )
    parser.set_defaults(command=_diff)


def _add_output(parser: Parser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="also write a page (.html), or both sides on one time axis for Perfetto (.pftrace)",
    )


def _diff(options: argparse.Namespace) -> int:
    from profiler_ext.sessions.comparing import diff

    check_options(options)
    base, head = _sides(options)
    compared = diff(base, head)
    gate = gate_of(compared, options)
    _print(compared, gate, options)
    if options.output:
        print_message(f"written to {compared.export(options.output, *options.conditions or ())}")
    return 0 if gate is None else report_gate(gate, compared, options)


def _print(compared: ComparedSessions, gate: Gate | None, options: argparse.Namespace) -> None:
    from profiler_ext.exporters.diff.gate import print_gate
    from profiler_ext.exporters.diff.markdown import gate_markdown
    from profiler_ext.exporters.diff.terminal import print_comparison
    from profiler_ext.exporters.json_output.comparison import comparison_answer

    comparison = compared.comparison
    if options.format == "json":
        print_answer(comparison_answer(comparison, options.by, options.top, gate), options)
        return
    top = _TOP if options.top is None else options.top
    if options.format == "text":
        if gate is not None:
            print_gate(gate, console())
        print_comparison(comparison, console(), options.by, top)
        return
    if gate is not None and options.format == "md":
        write(gate_markdown(gate))
    write(compared.report(options.by, top, options.format))


def _sides(options: argparse.Namespace) -> tuple[list[Path], list[Path]]:
    given = list(options.sessions)
    if options.base and options.head and not given:
        return options.base, options.head
    if len(given) == 2 and not (options.base or options.head):
        return given[:1], given[1:]
    raise UsageError(
        f"diff compares two sides, and was given {len(given)} sessions, --base "
        f"{len(options.base or ())} and --head {len(options.head or ())}; give BASE HEAD, or "
        "--base DIR [DIR ...] --head DIR [DIR ...]"
    )
