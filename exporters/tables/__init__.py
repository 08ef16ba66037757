"""Owns the tables: pandas frames with nullable dtypes, and their files. Only here is pandas."""

from pandas import DataFrame

from exporters.tables.accounts import coverage, fraction_at, fraction_of, graph_phase, graphs
from exporters.tables.files import (
    csv_text,
    json_text,
    markdown_text,
    read_csv,
    read_parquet,
    write_csv,
    write_parquet,
)
from exporters.tables.ranks import (
    chosen_ranks,
    graphs_of_ranks,
    joined,
    launches_of_ranks,
    ledger,
    summed,
)
from exporters.tables.rows import attribution, launches
from exporters.tables.sequence import SequenceRow, seq_table, seq_text
from exporters.tables.sums import by_kernel, by_line, by_module, by_op, by_phase

__all__ = [
    "DataFrame",
    "SequenceRow",
    "attribution",
    "by_kernel",
    "by_line",
    "by_module",
    "by_op",
    "by_phase",
    "chosen_ranks",
    "coverage",
    "csv_text",
    "fraction_at",
    "fraction_of",
    "graph_phase",
    "graphs",
    "graphs_of_ranks",
    "joined",
    "json_text",
    "launches",
    "launches_of_ranks",
    "ledger",
    "markdown_text",
    "read_csv",
    "read_parquet",
    "seq_table",
    "seq_text",
    "summed",
    "write_csv",
    "write_parquet",
]
