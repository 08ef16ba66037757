"""Owns ``profiler-ext report``: its options, and what it does with them."""

from __future__ import annotations

import argparse
from pathlib import Path

from profiler_ext.cli.printing import console, write

HELP = "print where the time of a session went"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Say what the command line may hold."""
    from profiler_ext.exporters.printed import PRINTED, TEXT
    from profiler_ext.exporters.table_kinds import BY

    parser.add_argument("session", type=Path, metavar="DIR", help="a session's folder, or a trace")
    parser.add_argument("--by", choices=list(BY), default="line")
    parser.add_argument("--top", type=int, default=15, help="how many rows")
    parser.add_argument("--format", choices=[each.name for each in PRINTED], default=TEXT.name)
    parser.set_defaults(command=_report)


def _report(options: argparse.Namespace) -> int:
    from profiler_ext.exporters.display_text import table_text
    from profiler_ext.exporters.terminal import print_report, report
    from profiler_ext.exporters.terminal_ranks import print_ranks_report
    from profiler_ext.sessions.merging import MergedSession, load

    session = load(options.session)
    if isinstance(session, MergedSession):
        if options.format == "text":
            print_ranks_report(session, console(), by=options.by, top=options.top)
        else:
            write(table_text(session.by(options.by), options.top, options.format))
    elif options.format == "text":
        print_report(session.analysis, console(), by=options.by, top=options.top)
    else:
        write(report(session.analysis, options.by, options.top, options.format))
    return 0
