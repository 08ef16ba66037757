"""Owns ``profiler-ext seq-table``: its options, and what it does with them."""

from __future__ import annotations

import argparse

from profiler_ext.cli.choices import FORMATS
from profiler_ext.cli.printing import write

HELP = "print which forward a backward op has"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Say what the command line may hold."""
    parser.add_argument(
        "example",
        metavar="FILE.py:FUNCTION",
        help="a function, or MODULE:FUNCTION, that returns a model and its inputs",
    )
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.set_defaults(command=_seq_table)


def _seq_table(options: argparse.Namespace) -> int:
    from profiler_ext.exporters.tables import (
        json_text,
        markdown_text,
        printed_csv,
        seq_text,
    )
    from profiler_ext.joint_table import load_example, seq_table

    writers = {"text": seq_text, "csv": printed_csv, "json": json_text, "md": markdown_text}
    model, inputs = load_example(options.example)
    write(writers[options.format](seq_table(model, inputs)))
    return 0
