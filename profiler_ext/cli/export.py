"""``profiler-ext export``: writes a session in another format."""

from __future__ import annotations

import argparse
from pathlib import Path

from profiler_ext.cli.common import (
    Parser,
    add_format,
    add_rank,
    add_roots,
    add_session,
    add_step,
    print_written,
)

HELP = "write a session in another format"


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    from profiler_ext.exporters.formats import FORMATS

    add_session(parser)
    words = "; ".join(f"{each.name}: {each.words}" for each in FORMATS)
    names = [each.name for each in FORMATS]
    parser.add_argument("--to", choices=names, required=True, help=words)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="PATH", help="file or folder (default: in DIR)"
    )
    add_step(parser)
    add_rank(parser)
    add_roots(parser)
    parser.add_argument(
        "--no-source",
        action="store_true",
        help="leave out all text of source, that of lines and generated code: for sharing",
    )
    add_format(parser, ["text", "json"])
    parser.show_examples(
        ("for ui.perfetto.dev", "profiler-ext export profile_out --to perfetto"),
        ("tables, elsewhere", "profiler-ext export profile_out --to csv -o tables"),
        (
            "the session, for somebody who may not see the source",
            "profiler-ext export profile_out --to chrome --no-source -o shared.json.gz",
        ),
        ("one step alone", "profiler-ext export profile_out --to html --step 4 -o step_4.html"),
    )
    parser.set_defaults(command=_export)


def _export(options: argparse.Namespace) -> int:
    from profiler_ext.exporters.formats import format_named
    from profiler_ext.sessions.merging import load, narrowed

    session = load(options.session, options.roots, jobs=options.jobs)
    format = format_named(options.to)
    session = session.without_source() if options.no_source else session
    target = options.output or (
        options.session if options.session.is_dir() else options.session.parent
    ) / _target(format.target, options.step)
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


def _target(name: str, step: int | None) -> str:
    """Return the path next to the session; an export of one step replaces none of all steps."""
    stem, dot, suffix = name.partition(".")
    return name if step is None else f"{stem}_step_{step}{dot}{suffix}"
