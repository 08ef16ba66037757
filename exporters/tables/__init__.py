"""The tables and their files; for users they are pandas frames with nullable dtypes."""

from profiler_ext.exporters.tables.communication import communication, skew
from profiler_ext.exporters.tables.compiles import compiles
from profiler_ext.exporters.tables.files import (
    csv_text,
    markdown_text,
    printed_csv,
    read_csv,
    read_parquet,
    write_csv,
    write_parquet,
)
from profiler_ext.exporters.tables.fusions import fusions
from profiler_ext.exporters.tables.idle import idle_by_cause, idle_by_line
from profiler_ext.exporters.tables.kernels import by_kernel, by_site
from profiler_ext.exporters.tables.memory import by_memory
from profiler_ext.exporters.tables.overview import (
    by_step,
    coverage,
    findings,
    fraction_at,
    fraction_linked_to_forward,
    fraction_of,
    gap_times_ns,
    graph_phase,
    graphs,
    utilisation,
)
from profiler_ext.exporters.tables.ranks import of_ranks
from profiler_ext.exporters.tables.rows import attribution, launches
from profiler_ext.exporters.tables.selection import Filters
from profiler_ext.exporters.tables.sequence import SequenceRow, seq_table, seq_text
from profiler_ext.exporters.tables.sums import (
    by_line,
    by_link,
    by_mechanism,
    by_module,
    by_op,
    by_phase,
)
from profiler_ext.exporters.tables.table import Table

__all__ = [
    "Filters",
    "SequenceRow",
    "Table",
    "attribution",
    "by_kernel",
    "by_line",
    "by_link",
    "by_mechanism",
    "by_memory",
    "by_module",
    "by_op",
    "by_phase",
    "by_site",
    "by_step",
    "communication",
    "compiles",
    "coverage",
    "csv_text",
    "findings",
    "fraction_at",
    "fraction_linked_to_forward",
    "fraction_of",
    "fusions",
    "gap_times_ns",
    "graph_phase",
    "graphs",
    "idle_by_cause",
    "idle_by_line",
    "launches",
    "markdown_text",
    "of_ranks",
    "printed_csv",
    "read_csv",
    "read_parquet",
    "seq_table",
    "seq_text",
    "skew",
    "utilisation",
    "write_csv",
    "write_parquet",
]
