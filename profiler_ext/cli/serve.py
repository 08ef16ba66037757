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
        "open, explain and compare sessions below the given folders. Nothing is written."
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
    parser.show_examples(("all sessions below runs", "profiler-ext serve runs"))
    parser.set_defaults(command=_serve)


def _serve(options: argparse.Namespace) -> int:
    from profiler_ext.exporters.extras import MCP

    MCP.require("profiler-ext serve")
    from profiler_ext.serving.server import serve

    serve(options.folders)
    return 0
