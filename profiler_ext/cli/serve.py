"""``profiler-ext serve``: answers agents' questions about sessions."""

from __future__ import annotations

import argparse
from pathlib import Path

from profiler_ext.cli.common import FOLDER, Parser

HELP = "serve sessions to agents over MCP"


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    parser.description = (
        "Answer questions over standard input and output, by the Model Context Protocol: list, "
        "open, explain and compare sessions below the given folders. Nothing is written, "
        "and nothing run, unless --allow-run lets agents try remedies on a script."
    )
    parser.add_argument(
        "folders",
        type=Path,
        nargs="*",
        default=[FOLDER],
        metavar="DIR",
        help="folders whose sessions may be read; links out of them are not followed "
        f"(default: {FOLDER})",
    )
    parser.add_argument(
        "--allow-run",
        action="store_true",
        help="let agents run `profiler-ext try`: it runs any program that they name, as you",
    )
    parser.show_examples(("all sessions below runs", "profiler-ext serve runs"))
    parser.set_defaults(command=_serve)


def _serve(options: argparse.Namespace) -> int:
    from profiler_ext.exporters.extras import MCP

    MCP.require("profiler-ext serve")
    from profiler_ext.serving.server import serve

    serve(options.folders, may_run=options.allow_run)
    return 0
