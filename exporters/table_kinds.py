"""Owns the list of tables: one row for each, which is all that commands and exports know of it.

A new table is a function that makes it, and a row here.
"""

from __future__ import annotations

from profiler_ext.errors import UsageError
from profiler_ext.exporters.record_kinds import RECORDS
from profiler_ext.exporters.table_kind import TableKind

_LINE = ("file", "line", "function", "code", "gap")
TABLES = (
    *RECORDS,
    TableKind(
        name="by_line",
        words="device time by source line",
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
        words="device time by module",
        maker="tables.sums:by_module",
        keys=("module", "gap"),
        is_sum=True,
        by="module",
        title="Modules",
        shown=(("module", "module"), ("module_class", "class")),
        unnamed="no module",
        drawer="module_table:module_table",
    ),
    TableKind(
        name="by_op",
        words="device time by ATen op",
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
        words="device time by kernel",
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
        words="device time by kernel and the place that launches it",
        maker="tables.kernels:by_site",
        keys=(
            "kernel",
            "name",
            "kind",
            "graph",
            "call_site",
            "file",
            "line",
            "module",
            "input_shapes",
            "grid",
            "block",
        ),
        is_sum=True,
        by="site",
        title="Call sites",
        shown=(("kernel", "kernel"), ("module", "module")),
        unnamed="no kernel",
    ),
    TableKind(
        name="by_phase",
        words="device time by phase",
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
        words="device time by the rule that tied backward work to its forward op",
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
        words="device time by the way by which source lines were found",
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
        words="where the CPU was while the device ran nothing",
        maker="tables.idle:idle_by_line",
        keys=(
            "device",
            "file",
            "line",
            "user_file",
            "user_line",
            "module",
            "cause",
            "cpu_activity",
            "gap",
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
        words="collectives: exposed, overlapped, and waiting for the last rank",
        maker="tables.communication:communication",
        keys=("collective", "process_group", *_LINE),
        is_sum=True,
        is_written=True,
        by="communication",
        title="Communication",
        shown=(("collective", "collective"), ("file", "line")),
        unnamed="not told",
        has_phases=False,
    ),
    TableKind(
        name="skew",
        words="which rank came last to collectives, and what it spent more time in than others",
        maker="tables.communication:skew",
        keys=("rank", "collective", "process_group", "cause", *_LINE),
        by="skew",
        title="Late ranks",
        shown=(("rank", "late rank"), ("file", "line")),
        unnamed="not told",
        has_phases=False,
    ),
    TableKind(
        name="idle_by_cause",
        words="why the device ran nothing",
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
        words="what compiling took, and why it was done",
        maker="tables.compiles:compiles",
        keys=("rank", "compilation"),
        is_written=True,
        by="compile",
        title="Compilations",
        shown=(("function", "function"), ("recompile_reason", "why again")),
        unnamed="no function",
        has_phases=False,
        drawer="compile_table:compile_table",
    ),
    TableKind(
        name="findings",
        words="what to do first",
        maker="tables.findings:findings",
        is_written=True,
    ),
)
WRITTEN = tuple(kind for kind in TABLES if kind.is_written)
_SUMS_FIRST = sorted(TABLES, key=lambda kind: kind in RECORDS)
BY = {kind.by: kind for kind in _SUMS_FIRST if kind.by is not None}


def table_named(name: str) -> TableKind:
    """Return the table that has a name.

    Raises:
        UsageError: There is none.
    """
    for kind in TABLES:
        if kind.name == name:
            return kind
    listed = ", ".join(kind.name for kind in TABLES)
    raise UsageError(f"there is no table {name!r}; ask for one of {listed}")


def table_by(by: str) -> TableKind:
    """Return the table that ``report --by`` calls so.

    Raises:
        UsageError: There is none.
    """
    if by not in BY:
        raise UsageError(f"there is no report by {by!r}; ask for one of {', '.join(BY)}")
    return BY[by]
