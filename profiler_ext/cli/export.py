"""Owns ``profiler-ext export``: its options, and what it does with them."""

from __future__ import annotations

import argparse
from pathlib import Path

from profiler_ext.cli.choices import add_roots
from profiler_ext.cli.printing import say, tell

HELP = "write a session in another format"

_DEFAULTS = {
    "perfetto": "trace.pftrace",
    "chrome": "trace.json.gz",
    "tensorboard": "tensorboard",
    "csv": "csv",
    "parquet": "parquet",
    "html": "report.html",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Say what the command line may hold."""
    from profiler_ext.session import FORMATS

    parser.add_argument("session", type=Path, metavar="DIR", help="a session's folder, or a trace")
    parser.add_argument("--to", choices=FORMATS, required=True)
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="default: beside DIR")
    add_roots(parser)
    parser.set_defaults(command=_export)


def _export(options: argparse.Namespace) -> int:
    from profiler_ext.merging import MergedSession, export_ranks_as, load
    from profiler_ext.session import export_as

    session = load(options.session, options.roots)
    target = options.output or _default_target(options.session, options.to)
    if isinstance(session, MergedSession):
        say(str(export_ranks_as(session, options.to, target)))
    else:
        say(str(export_as(session, options.to, target)))
    if options.to == "tensorboard":
        _print_how_to_view(target)
    return 0


def _print_how_to_view(log_dir: Path) -> None:
    from profiler_ext.exporters.tensorboard_plugin.viewing import how_to_view

    for sentence in how_to_view(log_dir):
        tell(sentence)


def _default_target(session: Path, format: str) -> Path:
    folder = session if session.is_dir() else session.parent
    return folder / _DEFAULTS[format]
