"""What the tests of the tables share: analyses to ask, and how a table is read."""

from __future__ import annotations

from dataclasses import replace

from profiler_ext.records.analysis import Analysis, Step
from profiler_ext.records.recording import Recording
from tests import frames as tables
from tests.analyses import GPU_MARKS, GPU_PLACES, GPU_ROWS, gpu_step
from tests.handmade import launches, shares, trace

PHASES = ["forward", "backward", "recompute", "gradient_accumulation", "optimizer", "other"]
SUMMING_TABLES = [
    tables.by_line,
    tables.by_module,
    tables.by_op,
    tables.by_phase,
    tables.by_link,
    tables.by_mechanism,
    tables.by_kernel,
    tables.by_site,
]
ESTIMATES = [
    "est_bytes",
    "est_flops",
    "est_gb_per_s",
    "est_tflop_per_s",
    "est_attainable_tflop_per_s",
    "est_peak_fraction",
]
BOUNDS = ["bound", "roofline_ns", "could_save_ns"]
ROOFLINES = [*ESTIMATES, "unit", *BOUNDS]
SHAPES = ["grid", "block", "registers_per_thread", "shared_memory_bytes", "est_occupancy"]
OF_LAUNCHES = [*SHAPES, *ESTIMATES, "unit", "unit_evidence", *BOUNDS]
EVERY_TABLE = [*SUMMING_TABLES, tables.launches, tables.attribution, tables.graphs, tables.coverage]
EVERY_TABLE += [tables.compiles, tables.utilisation]
ONE_STEP = (Step.on_cpu(3, 0, 1_000_000),)


def dtypes(table):
    return {name: str(dtype) for name, dtype in table.dtypes.items()}


def rows(table, *names):
    return [tuple(row) for row in table[list(names)].astype(object).itertuples(index=False)]


def row(table, number):
    return dict(zip(table.columns, rows(table, *table.columns)[number], strict=True))


def empty():
    recording = Recording(trace=trace(()))
    return Analysis(recording, (), launches((), ()), (), shares(()))


def of_rows(*changed, steps=ONE_STEP, places=GPU_PLACES):
    return replace(
        gpu_step(),
        steps=steps,
        places=places,
        launches=launches(GPU_MARKS, changed),
        shares=shares(changed),
    )


def two_steps():
    """The last launch is of a second step, and the one before of none."""
    *first, memset, update = GPU_ROWS
    changed = (*first, replace(memset, step=None), replace(update, step=4))
    return of_rows(*changed, steps=(Step.on_cpu(3, 0, 600_000), Step.on_cpu(4, 600_000, 1_000_000)))


def one_place(**change):
    """A launch of 20,001 ns that belongs to one place."""
    place = replace(GPU_PLACES[1], **change)
    row = replace(GPU_ROWS[2], parts=((0, 20_001),))
    return of_rows(row, places=(place,))
