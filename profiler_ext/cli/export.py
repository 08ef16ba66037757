"""``profiler-ext export``: writes a session in another format."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.cli.common import (
    Parser,
    add_format,
    add_rank,
    add_roots,
    add_session,
    add_step,
    help_group,
    print_message,
    print_written,
)
from profiler_ext.errors import UsageError

if TYPE_CHECKING:
    from profiler_ext.exporters.formats import Format

HELP = "export a session to another format"


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    from profiler_ext.exporters.formats import FORMATS

    add_session(parser)
    parser.add_argument(
        "-o", "--output", metavar="PATH", help="file or folder to write; its suffix is the format"
    )
    parser.add_argument("--to", help=argparse.SUPPRESS)  # before 0.4 it named the format
    add_step(parser)
    add_rank(parser)
    add_roots(parser)
    parser.add_argument(
        "--no-source",
        action="store_true",
        help="leave out all source text, of lines and of generated code: for sharing",
    )
    add_format(parser, ["text", "json"])
    parser.show_examples(
        ("for ui.perfetto.dev", "profiler-ext export -o trace.pftrace"),
        ("a folder of tables", "profiler-ext export profile_out -o tables.csv"),
        ("for TensorBoard", "profiler-ext export profile_out -o logs/my_run"),
        (
            "the session, for somebody who may not see the source",
            "profiler-ext export profile_out --no-source -o shared.json.gz",
        ),
        ("one step alone", "profiler-ext export profile_out --step 4 -o step_4.html"),
    )
    rows = [(" ".join(each.suffixes).strip() or "(none)", each.description) for each in FORMATS]
    parser.epilog = "\n\n".join((help_group("formats by suffix", rows), parser.epilog or ""))
    parser.set_defaults(command=_export)


def _export(options: argparse.Namespace) -> int:
    from profiler_ext.sessions.merging import load, narrowed

    format, target = _format_and_target(options)
    session = load(options.session, options.roots, jobs=options.jobs)
    session = session.without_source() if options.no_source else session
    if options.rank is None and options.step is None:
        written = session.export_as(format, target)
    else:
        analyses, roots = narrowed(session, options.rank, options.step), session.roots
        one, *others = analyses
        written = (
            format.write_ranks(analyses, target, roots)
            if others
            else format.write(one, target, roots)
        )
    print_written(written, format.name, tuple(format.hints(target)), options)
    return 0


def _format_and_target(options: argparse.Namespace) -> tuple[Format, Path]:
    from profiler_ext.exporters.formats import FORMATS, format_named, format_of

    if options.to is None:
        if options.output is None:
            listed = ", ".join(each.target for each in FORMATS)
            raise UsageError(f"give -o PATH, whose suffix names the format: {listed}")
        return format_of(options.output), Path(options.output)
    format = format_named(options.to)
    folder = options.session if options.session.is_dir() else options.session.parent
    target = Path(options.output or folder / _target(format.target, options.step))
    print_message(f"--to is deprecated; the suffix of -o names the format: -o {format.target}")
    return format, target


def _target(name: str, step: int | None) -> str:
    """Return the path next to the session; an export of one step replaces none of all steps."""
    stem, dot, suffix = name.partition(".")
    return name if step is None else f"{stem}_step_{step}{dot}{suffix}"
