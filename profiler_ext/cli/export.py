"""Owns ``profiler-ext export``: its options, and what it does with them."""

from __future__ import annotations

import argparse
from pathlib import Path

from profiler_ext.cli.choices import add_format, add_rank, add_roots, add_session, print_written
from profiler_ext.cli.parsing import Parser

HELP = "write a session in another format"


def add_options(parser: Parser) -> None:
    """Say what the command line may hold."""
    from profiler_ext.exporters.formats import FORMATS

    add_session(parser)
    words = "; ".join(f"{each.name}: {each.words}" for each in FORMATS)
    names = [each.name for each in FORMATS]
    parser.add_argument("--to", choices=names, required=True, help=words)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="PATH", help="file or folder (default: in DIR)"
    )
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
    )
    parser.set_defaults(command=_export)


def _export(options: argparse.Namespace) -> int:
    from profiler_ext.exporters.formats import format_called
    from profiler_ext.sessions.merging import MergedSession, load

    session, format = load(options.session, options.roots), format_called(options.to)
    session = session.without_source() if options.no_source else session
    target = options.output or _folder(options.session) / format.target
    if options.rank is None:
        written = session.export_as(format, target)
    else:
        merged = session if isinstance(session, MergedSession) else MergedSession([session])
        (analysis,) = merged.of_rank(options.rank)
        written = format.write(analysis, target, merged.roots)
    print_written(written, format.name, tuple(format.hints(target)), options)
    return 0


def _folder(session: Path) -> Path:
    return session if session.is_dir() else session.parent
