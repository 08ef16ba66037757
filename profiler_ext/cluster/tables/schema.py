"""Owns the columns that only tables of a job have: one row for each name."""

from __future__ import annotations

from profiler_ext.exporters.tables.arrays import REAL, TEXT, WHOLE
from profiler_ext.exporters.tables.schema import COLUMNS, Column

_OF_JOBS = (
    Column("host", TEXT, "the machine; absent where nothing tells it"),
    Column("recording", TEXT, "the file of the rank"),
    Column("torch_version", TEXT, "torch that recorded it"),
    Column("slowest_ns", REAL, "a step's time on the rank where it is longest"),
    Column("slowest_rank", WHOLE, "that rank"),
    Column("slowest_host", TEXT, "its host"),
    Column("middle_ns", REAL, "a step's time on the median rank, of an even number the lower"),
    Column("middle_rank", WHOLE, "that rank"),
    Column("middle_host", TEXT, "its host"),
    Column("fastest_ns", REAL, "a step's time on the rank where it is shortest"),
    Column("fastest_rank", WHOLE, "that rank"),
    Column("fastest_host", TEXT, "its host"),
    Column("step_ns", REAL, "wall time of the usual step"),
    Column("work_ns", REAL, "device time of a step without collectives"),
    Column("step_waiting_ns", REAL, "how long it waits for last ranks in a step, if all are there"),
    Column("least_step_waiting_ns", REAL, "how long at least it waits for last ranks in a step"),
    Column("least_waiting_ns", WHOLE, "how long at least was waited for last ranks"),
    Column("most_transfer_ns", WHOLE, "the rest of their time: transfer, and further waiting"),
    Column("incomplete", WHOLE, "launches of which not every rank of the group is there"),
    Column("behind_ns", REAL, "how much later than the median rank it comes, in a step"),
    Column("times", REAL, "how many times as long as on the median rank"),
    Column("excess_ns", REAL, "how much longer than on the median rank, in a step"),
    Column("straggler", TEXT, "in what it is behind the others"),
    Column("last_rank", WHOLE, "the rank that came last most often"),
    Column("last_host", TEXT, "its host"),
    Column("last_times", WHOLE, "to how many of the collectives it came last"),
    Column("collectives", WHOLE, "how many collectives tell it"),
    Column("shift_ns", WHOLE, "what is added to the rank's wall clock"),
    Column("residual_ns", WHOLE, "median distance of its collectives' ends from the median rank's"),
    Column("reason", TEXT, "why it is not in the tables"),
    Column("found", TEXT, "what was found"),
)
JOB_COLUMNS = {**COLUMNS, **{column.name: column for column in _OF_JOBS}}
"""All columns that a job's tables have."""
