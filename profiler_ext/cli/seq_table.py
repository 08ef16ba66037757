"""``profiler-ext seq-table``: prints the table of a model's joint graph."""

from __future__ import annotations

import argparse

from profiler_ext.cli.common import Parser, add_format, print_answer, write

HELP = "print the forward op of each backward op"


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    from profiler_ext.exporters.table_kinds import PRINT_FORMATS

    parser.add_argument(
        "example",
        metavar="FILE.py:FUNCTION",
        help="function that returns a model and its inputs; or MODULE:FUNCTION",
    )
    add_format(parser, [each.name for each in PRINT_FORMATS])
    parser.show_examples(("of a model and its inputs", "profiler-ext seq-table model.py:example"))
    parser.set_defaults(command=_seq_table)


def _seq_table(options: argparse.Namespace) -> int:
    from profiler_ext.exporters.table_kinds import printed
    from profiler_ext.exporters.tables import seq_text
    from profiler_ext.joint_table import load_example, seq_columns

    model, inputs = load_example(options.example)
    table = seq_columns(model, inputs)
    if options.format == "json":
        from profiler_ext.exporters.json_output.answers import sequence_answer

        print_answer(sequence_answer(table), options)
    else:
        write(seq_text(table) if options.format == "text" else printed(table, options.format))
    return 0
