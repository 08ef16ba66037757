"""``profiler-ext skill``: prints the instructions for coding agents, SKILL.md of this package."""

from __future__ import annotations

import argparse
from pathlib import Path

from profiler_ext.cli.common import Parser, print_line, write

SKILL = Path(__file__).parents[1] / "SKILL.md"

HELP = "print SKILL.md, instructions for coding agents"


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--path", action="store_true", help="print the path of the file, to copy or link it"
    )
    parser.show_examples(
        ("read it", "profiler-ext skill"),
        ("where it is, to copy it into a folder of skills", "profiler-ext skill --path"),
    )
    parser.set_defaults(command=_skill)


def _skill(options: argparse.Namespace) -> int:
    if options.path:
        print_line(str(SKILL))
    else:
        write(SKILL.read_text(encoding="utf-8"))
    return 0
