"""``profiler-ext annotate``: prints source with its time in the margin."""

from __future__ import annotations

import argparse

from profiler_ext.cli.common import (
    Parser,
    add_format,
    add_rank,
    add_roots,
    add_session,
    add_step,
    console,
    write,
)

HELP = "print source with time in the margin"

_FILE_WIDTH = 240


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    from profiler_ext.exporters.table_kinds import PRINT_FORMATS

    forms = [each.name for each in PRINT_FORMATS if each.is_of_source]
    add_session(parser)
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="file names or path endings (default: all files with time)",
    )
    add_step(parser)
    add_rank(parser)
    add_format(parser, forms)
    add_roots(parser)
    parser.show_examples(
        ("each file that took time", "profiler-ext annotate profile_out"),
        ("one file, of rank 1", "profiler-ext annotate profile_out model.py --rank 1"),
        ("one step alone", "profiler-ext annotate profile_out --step 4"),
    )
    parser.set_defaults(command=_annotate)


def _annotate(options: argparse.Namespace) -> int:
    from profiler_ext.exporters.sources import local_sources
    from profiler_ext.exporters.terminal.annotate import annotate, print_annotated
    from profiler_ext.sessions.merging import load, narrowed

    session = load(options.session, options.roots, jobs=options.jobs)
    analyses = narrowed(session, options.rank, options.step)
    texts = local_sources(analyses, options.roots)
    if options.format == "text":
        print_annotated(analyses, console(_FILE_WIDTH), texts, options.files)
    else:
        write(annotate(analyses, texts, options.files, options.format, budget=options.budget))
    return 0
