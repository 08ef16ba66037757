"""Owns ``profiler-ext export``: its options, and what it does with them."""

from __future__ import annotations

import argparse
from pathlib import Path

from profiler_ext.cli.choices import add_format, add_roots, print_written

HELP = "write a session in another format"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Say what the command line may hold."""
    from profiler_ext.exporters.formats import FORMATS

    parser.add_argument("session", type=Path, metavar="DIR", help="a session's folder, or a trace")
    parser.add_argument("--to", choices=[each.name for each in FORMATS], required=True)
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="default: beside DIR")
    add_format(parser, ["text", "json"])
    add_roots(parser)
    parser.set_defaults(command=_export)


def _export(options: argparse.Namespace) -> int:
    from profiler_ext.exporters.formats import format_called
    from profiler_ext.sessions.merging import load

    session, format = load(options.session, options.roots), format_called(options.to)
    target = options.output or _folder(options.session) / format.target
    written = session.export_as(format, target)
    print_written(written, format.name, tuple(format.hints(target)), options)
    return 0


def _folder(session: Path) -> Path:
    return session if session.is_dir() else session.parent
