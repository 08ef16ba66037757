"""The list of tables: one row names each and its functions. A new table is a function and a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from profiler_ext.errors import UsageError

if TYPE_CHECKING:
    from profiler_ext.exporters.tables.table import Table
    from profiler_ext.records.analysis import Analysis

_DRAWER = "terminal.tables:record_table"
_LINE = ("file", "line", "function", "code", "gap")


def load_function(function: str) -> Callable[..., Any]:
    """Load ``module:function``, relative to this package."""
    module, _, name = function.partition(":")
    loaded: Callable[..., Any] = getattr(import_module(f"{__package__}.{module}"), name)
    return loaded


@dataclass(frozen=True, slots=True)
class TableKind:
    """A table of a session; its functions are named ``module:function`` and loaded lazily."""

    name: str  # of its file and of the session's method
    description: str  # shown to users
    maker: str  # (analysis, ...) -> Table
    keys: tuple[str, ...] = ()  # columns that identify a row, if any
    is_sum: bool = False  # sums device time; summed over ranks
    is_written: bool = False  # a file in exported folders
    no_rows: str = ""  # why it may have none, and the remedy; then there is no file
    by: str | None = None  # name in ``report --by``
    title: str = ""  # page heading
    shown: tuple[tuple[str, str], ...] = ()  # columns shown, and their headings
    unnamed: str = ""  # label of rows without name and gap
    has_phases: bool = True  # has a column per phase
    is_longest_first: bool = False  # reports show the longest rows first
    drawer: str = "terminal.tables:top_table"  # Drawing -> renderable

    @property
    def headings(self) -> tuple[str, ...]:
        """The headings of the columns that name a row."""
        return tuple(heading for _, heading in self.shown)

    @property
    def is_optional(self) -> bool:
        """Whether it may have no rows, and then no file."""
        return bool(self.no_rows)

    def require_rows(self, table: Table) -> None:
        """Raise UsageError where a table needs something that was not recorded."""
        if self.is_optional and not len(table):
            raise UsageError(self.no_rows)

    def in_order(self, table: Table) -> Table:
        """Return a table's rows in a report's order."""
        if not self.is_longest_first:
            return table
        return table.longest_first(())

    def arguments(self, depth: int | None) -> tuple[int, ...]:
        """Return the arguments besides filters.

        Raises:
            UsageError: It has no depth, or the depth is negative.
        """
        if depth is None:
            return ()
        if depth < 0 or self.by != "module":
            allowed = "0 or more" if depth < 0 else "one of a report by module, which alone has it"
            raise UsageError(f"the depth is {depth}; ask for {allowed}")
        return (depth,)

    def make(self, analysis: Analysis, *arguments: Any, **filters: Any) -> Table:
        """Make the table from an analysis.

        Raises:
            UsageError: There is no such step, rank or phase, or the table has none.
        """
        given = {name: value for name, value in filters.items() if value is not None}
        own, rank = analysis.recording.settings.rank, given.get("rank")
        if rank not in (None, own):
            raise UsageError(f"there is no rank {rank}; the session is of rank {own} alone")
        if not self.has_phases and (wrong := sorted(given.keys() & {"phase", "scope", "kernel"})):
            names = " and ".join(wrong)
            raise UsageError(f"{self.name} is of no work and has no {names}; leave that out")
        from profiler_ext.exporters.tables.selection import Selection

        chosen = Selection(given.get("step"), step_kind=given.pop("step_kind", None))
        narrowed = chosen.narrowed(analysis, is_sum=self.is_sum)
        table: Table = load_function(self.maker)(narrowed, *arguments, **given)
        return table


RECORDS = (
    TableKind(
        name="launches",
        description="one row for each launch",
        maker="tables.rows:launches",
        keys=("rank", "launch"),
        is_written=True,
        by="launches",
        title="Launches",
        shown=(
            ("kernel", "kernel"),
            ("launch", "launch"),
            ("duration_ns", "time"),
            ("step", "step"),
            ("phase", "phase"),
            ("kind", "kind"),
            ("compile_id", "graph"),
            ("call_site", "call site"),
            ("grid", "grid"),
        ),
        unnamed="no kernel",
        is_longest_first=True,
        drawer=_DRAWER,
    ),
    TableKind(
        name="attribution",
        description="one row for each launch and FX node",
        maker="tables.rows:attribution",
        is_written=True,
        by="attribution",
        title="Attribution",
        shown=(
            ("aten_op", "ATen op"),
            ("launch", "launch"),
            ("duration_ns", "time"),
            ("file", "line"),
            ("module", "module"),
            ("phase", "phase"),
            ("node", "node"),
            ("evidence", "evidence"),
        ),
        unnamed="no op",
        is_longest_first=True,
        drawer=_DRAWER,
    ),
    TableKind(
        name="coverage",
        description="the step time breakdown",
        maker="tables.overview:coverage",
        keys=("scope", "level", "category"),
        is_sum=True,
        is_written=True,
        by="coverage",
        title="Step time breakdown",
        shown=(
            ("category", "category"),
            ("per_step_ns", "time/step"),
            ("fraction", "part"),
            ("scope", "scope"),
            ("level", "level"),
            ("duration_ns", "time"),
        ),
        unnamed="no category",
        drawer=_DRAWER,
    ),
    TableKind(
        name="graphs",
        description="the compiled graphs",
        maker="tables.overview:graphs",
        is_written=True,
        by="graphs",
        title="Graphs",
        shown=(
            ("compile_id", "graph"),
            ("phase", "phase"),
            ("fx_nodes", "FX nodes"),
            ("call_sites", "call sites"),
            ("cache_state", "cache"),
            ("compile_ns", "compiling"),
            ("key", "key"),
        ),
        unnamed="no compile id",
        drawer=_DRAWER,
    ),
    TableKind(
        name="fusions",
        description="buffers between kernels, and why these were not fused",
        maker="tables.fusions:fusions",
        keys=("rank", "graph", "buffer", "call_site", "reader_call_site"),
        is_written=True,
        by="fusion",
        title="Buffers between kernels",
        shown=(
            ("file", "stored at"),
            ("reader_file", "loaded at"),
        ),
        unnamed="no line",
        drawer="terminal.tables:between_table",
    ),
    TableKind(
        name="utilisation",
        description="the model FLOPs utilisation (MFU) of each step",
        maker="tables.overview:utilisation",
        keys=("rank", "step"),
        by="utilisation",
        title="Utilisation",
        shown=(
            ("step", "step"),
            ("wall_ns", "wall time"),
            ("mfu", "MFU"),
            ("est_flops", "TFLOP"),
            ("unit", "unit"),
            ("known_fraction", "known"),
            ("counted_fraction", "counted"),
        ),
        unnamed="no step",
        drawer=_DRAWER,
    ),
    TableKind(
        name="by_step",
        description="each step: its kind and tokens in inference, how long the devices were busy",
        maker="tables.overview:by_step",
        keys=("rank", "step"),
        is_written=True,
        by="step",
        title="Steps",
        shown=(
            ("step", "step"),
            ("wall_ns", "wall time"),
            ("busy_ns", "busy"),
            ("step_kind", "kind"),
            ("batch", "batch"),
            ("length", "length"),
            ("tokens", "tokens"),
            ("tokens_per_s", "tokens/s"),
        ),
        unnamed="no step",
        has_phases=False,
        drawer=_DRAWER,
    ),
)


TABLES = (
    *RECORDS,
    TableKind(
        name="by_line",
        description="device time by source line",
        maker="tables.sums:by_line",
        keys=("file", "line", "gap"),
        is_sum=True,
        by="line",
        title="Lines",
        shown=(("file", "line"), ("code", "code")),
        unnamed="no source line",
    ),
    TableKind(
        name="by_module",
        description="device time by module",
        maker="tables.sums:by_module",
        keys=("module", "gap"),
        is_sum=True,
        by="module",
        title="Modules",
        shown=(("module", "module"), ("module_class", "class")),
        unnamed="no module",
        drawer="terminal.module_table:module_table",
    ),
    TableKind(
        name="by_op",
        description="device time by ATen op",
        maker="tables.sums:by_op",
        keys=("aten_op", "gap"),
        is_sum=True,
        by="op",
        title="ATen ops",
        shown=(("aten_op", "ATen op"),),
        unnamed="no op",
    ),
    TableKind(
        name="by_kernel",
        description="device time by kernel",
        maker="tables.kernels:by_kernel",
        keys=("kernel", "name", "kind"),
        is_sum=True,
        by="kernel",
        title="Kernels",
        shown=(("kernel", "kernel"), ("name", "the device's name"), ("kind", "kind")),
        unnamed="no kernel",
    ),
    TableKind(
        name="by_site",
        description="device time by kernel and the place that launches it",
        maker="tables.kernels:by_site",
        keys=(
            *("kernel", "name", "kind", "graph", "call_site", "file", "line", "module"),
            *("input_shapes", "grid", "block"),
        ),
        is_sum=True,
        by="site",
        title="Call sites",
        shown=(("kernel", "kernel"), ("module", "module")),
        unnamed="no kernel",
    ),
    TableKind(
        name="by_phase",
        description="device time by phase",
        maker="tables.sums:by_phase",
        keys=("phase",),
        is_sum=True,
        by="phase",
        title="Phases",
        shown=(("phase", "phase"),),
        unnamed="no phase",
    ),
    TableKind(
        name="by_link",
        description="device time by the rule that tied backward work to its forward op",
        maker="tables.sums:by_link",
        keys=("forward_evidence", "gap"),
        is_sum=True,
        by="link",
        title="Links to forward",
        shown=(("forward_evidence", "link to forward"),),
        unnamed="not backward",
    ),
    TableKind(
        name="by_mechanism",
        description="device time by the way by which source lines were found",
        maker="tables.sums:by_mechanism",
        keys=("mechanism", "gap"),
        is_sum=True,
        by="mechanism",
        title="Ways to source lines",
        shown=(("mechanism", "way to the line"),),
        unnamed="no line in a graph, or not recorded",
    ),
    TableKind(
        name="idle_by_line",
        description="where the CPU was while the device ran nothing",
        maker="tables.idle:idle_by_line",
        keys=(
            *("device", "file", "line", "user_file", "user_line", "module"),
            *("cause", "cpu_activity", "gap"),
        ),
        is_sum=True,
        is_written=True,
        by="idle",
        title="Idle, by line",
        shown=(("file", "waiting at"), ("cpu_activity", "why: while the CPU ran")),
        unnamed="no source line",
        has_phases=False,
    ),
    TableKind(
        name="communication",
        description="collectives: exposed, overlapped, and waiting for the last rank",
        maker="tables.communication:communication",
        keys=("collective", "process_group", *_LINE),
        is_sum=True,
        is_written=True,
        by="communication",
        title="Communication",
        shown=(("collective", "collective"), ("file", "line")),
        unnamed="unknown",
        has_phases=False,
    ),
    TableKind(
        name="skew",
        description="which rank came last to collectives, and what it spent more time in",
        maker="tables.communication:skew",
        keys=("rank", "collective", "process_group", "cause", *_LINE),
        by="skew",
        title="Late ranks",
        shown=(("rank", "late rank"), ("file", "line")),
        unnamed="unknown",
        has_phases=False,
    ),
    TableKind(
        name="idle_by_cause",
        description="why the device ran nothing",
        maker="tables.idle:idle_by_cause",
        keys=("device", "cause", "file", "line", "gap"),
        is_sum=True,
        is_written=True,
        by="cause",
        title="Idle, by cause",
        shown=(("cause", "device idle"), ("file", "line")),
        unnamed="no cause",
        has_phases=False,
    ),
    TableKind(
        name="compiles",
        description="what compiling took, and why it was done",
        maker="tables.compiles:compiles",
        keys=("rank", "compilation"),
        is_written=True,
        by="compile",
        title="Compilations",
        shown=(("function", "function"), ("recompile_reason", "why again")),
        unnamed="no function",
        has_phases=False,
        drawer="terminal.tables:compile_table",
    ),
    TableKind(
        name="by_memory",
        description="device memory at the peak by line, kind and owner, of `run --memory`",
        maker="tables.memory:by_memory",
        keys=(
            *("rank", "step", "device", "kind", "phase", "file", "line", "module", "aten_op"),
            *("kernel", "owner", "gap"),
        ),
        is_written=True,
        no_rows="the session has no memory record; record one with `profiler-ext run --memory`",
        by="memory",
        title="Memory at the peak",
        shown=(("file", "line"), ("kind", "kind")),
        unnamed="no line",
        drawer="terminal.memory:memory_table",
    ),
    TableKind(
        name="findings",
        description="recommendations, the largest saving first",
        maker="tables.overview:findings",
        is_written=True,
    ),
)
WRITTEN = tuple(kind for kind in TABLES if kind.is_written)
_SUMS_FIRST = sorted(TABLES, key=lambda kind: kind in RECORDS)
BY = {kind.by: kind for kind in _SUMS_FIRST if kind.by is not None}


def table_named(name: str) -> TableKind:
    """Return the table with a name."""
    for kind in TABLES:
        if kind.name == name:
            return kind
    listed = ", ".join(kind.name for kind in TABLES)
    raise UsageError(f"there is no table {name!r}; ask for one of {listed}")


def table_by(by: str) -> TableKind:
    """Return the table that ``report --by`` names."""
    if by not in BY:
        raise UsageError(f"there is no report by {by!r}; ask for one of {', '.join(BY)}")
    return BY[by]


@dataclass(frozen=True, slots=True)
class PrintFormat:
    """A format in which results are printed."""

    name: str  # value of ``--format``
    description: str  # shown to users
    writer: str | None = None  # table -> text; ``None``: made by each command
    is_of_source: bool = False  # supports annotated source


TEXT = PrintFormat("text", "for a person, in the terminal", is_of_source=True)
JSON = PrintFormat("json", "one JSON object of answers.schema.json", is_of_source=True)
PRINT_FORMATS = (
    TEXT,
    PrintFormat("csv", "comma-separated, with raw numbers", "tables.files:printed_csv"),
    JSON,
    PrintFormat("md", "a Markdown table", "tables.files:markdown_text"),
)


def printed(table: Table, format: str) -> str:
    """Return a table as text for a program.

    Raises:
        UsageError: There is no such format.
    """
    for each in PRINT_FORMATS:
        if each.name == format and each.writer is not None:
            return str(load_function(each.writer)(table))
    *first, last = (each.name for each in PRINT_FORMATS)
    raise UsageError(f"there is no format {format!r}; ask for {', '.join(first)} or {last}")
