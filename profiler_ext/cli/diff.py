"""Owns ``profiler-ext diff``: its options, and what it does with them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.cli.choices import DEFAULT, add_format, print_answer
from profiler_ext.cli.gating import add_gate, check_options, gate_of, report_gate
from profiler_ext.cli.parsing import Parser
from profiler_ext.cli.printing import console, print_message, write
from profiler_ext.errors import UsageError

if TYPE_CHECKING:
    from profiler_ext.gate.records import Gate
    from profiler_ext.sessions.comparing import ComparedSessions

HELP = "compare two runs, or several of each side, line by line"

_TOP = 15


def add_options(parser: Parser) -> None:
    """Say what the command line may hold."""
    from profiler_ext.comparison.comparison import BY
    from profiler_ext.exporters.printed import PRINT_FORMATS

    parser.add_argument(
        "sessions",
        type=Path,
        nargs="*",
        metavar="BASE HEAD",
        help="folders of sessions, or traces: what came before, and what is compared with it",
    )
    for side, words in (("base", "came before"), ("head", "is compared with them")):
        parser.add_argument(
            f"--{side}",
            type=Path,
            nargs="+",
            metavar="DIR",
            help=f"instead of that: several runs of what {words}",
        )
    parser.add_argument(
        "--by",
        choices=BY,
        default="line",
        metavar="WHAT",
        help=f"compare by %(choices)s {DEFAULT}",
    )
    parser.add_argument(
        "--top", type=int, metavar="N", help=f"rows (default: {_TOP}, of --format json all)"
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
        help="write a page (.html), or both sides on one time axis for Perfetto (.pftrace), too",
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
    from profiler_ext.exporters.comparison_json import comparison_answer
    from profiler_ext.exporters.comparison_terminal import print_comparison
    from profiler_ext.exporters.gate_markdown import gate_markdown
    from profiler_ext.exporters.gate_texts import print_gate

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
