"""``profiler-ext attach``: attributes an existing torch.profiler trace."""

from __future__ import annotations

import argparse
from pathlib import Path

from profiler_ext.cli.common import Parser, add_folder, add_format, print_answer, print_message

HELP = "attribute an existing torch.profiler trace"


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "trace", type=Path, metavar="TRACE", help="a torch.profiler trace, .json or .json.gz"
    )
    add_folder(parser)
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="folder of the script that was profiled (default: the working folder)",
    )
    parser.add_argument(
        "--cache-dir",
        type=Path,
        metavar="DIR",
        help="Inductor's cache folder (default: torch's own)",
    )
    parser.add_argument(
        "--package",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a package of AOTInductor's that the trace runs, .pt2 or .so; several times for more",
    )
    add_format(parser, ["text", "json"])
    parser.show_examples(
        ("a trace that torch.profiler wrote", "profiler-ext attach trace.json.gz -o attached"),
        (
            "a C++ program that runs a package",
            "profiler-ext attach trace.json --package model.pt2 -o attached",
        ),
    )
    parser.set_defaults(command=_attach)


def _attach(options: argparse.Namespace) -> int:
    from profiler_ext.attaching import attach
    from profiler_ext.cli.cache import open_store
    from profiler_ext.cli.run import print_session
    from profiler_ext.exporters.json_output.answers import report_answer
    from profiler_ext.kineto.recording import read_recording
    from profiler_ext.sessions.folder import check_folder
    from profiler_ext.sessions.output import write_outputs
    from profiler_ext.sessions.session import Session

    check_folder(options.output, force=options.force)
    store = open_store(options.cache_dir)
    attached = attach(read_recording(options.trace), store, options.root, options.package)
    session = Session(attached.recording, roots=[options.root])
    write_outputs(session, options.output, keep=False)  # the trace is still there
    if options.format == "json":
        print_answer(report_answer(session), options)
    else:
        print_session(session, options.output, options.output)
    for file in attached.missing:
        print_message(f"there is no {file}; give its folder with --root")
    for key in attached.unknown:
        print_message(f"no record of graph {key} in {store.folder}")
    if not attached.keys:
        print_message("no compiled graph in the trace has a cache key")
    return 0
