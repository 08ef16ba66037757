"""``profiler-ext merge``: joins the sessions of several ranks."""

from __future__ import annotations

import argparse
from pathlib import Path

from profiler_ext.cli.common import FOLDER, Parser, add_format, print_written

HELP = "merge the sessions of several ranks"


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "sessions",
        nargs="*",
        type=Path,
        default=[FOLDER],
        metavar="DIR",
        help=f"folders of ranks, or traces (default: {FOLDER})",
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="DIR", help="output folder"
    )
    add_format(parser, ["text", "json"])
    parser.show_examples(
        ("two ranks", "profiler-ext merge profile_out/rank_0 profile_out/rank_1 -o all"),
        ("all ranks of a torchrun job", "profiler-ext merge profile_out -o all"),
        ("traces of torch.profiler", "profiler-ext merge log/*.pt.trace.json -o all"),
    )
    parser.set_defaults(command=_merge)


def _merge(options: argparse.Namespace) -> int:
    from profiler_ext.exporters.formats import SESSION, run_outputs
    from profiler_ext.sessions.merging import merge
    from profiler_ext.sessions.session import load_ranks, rank_files

    places = [rank for each in options.sessions for rank in rank_files(each) or [each]]
    merged = merge(load_ranks(places))
    merged.save(options.output)
    for each in run_outputs():
        if each.holds_ranks:
            merged.export_as(each, each.place_in(options.output))
    print_written(options.output, SESSION.name, merged.notes, options)
    return 0
