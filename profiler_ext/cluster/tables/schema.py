"""Owns the columns that only tables of a job have: one row for each name."""

from __future__ import annotations

from profiler_ext.exporters.tables.arrays import FLOAT, TEXT, INT
from profiler_ext.exporters.tables.schema import COLUMNS, Column

_OF_JOBS = (
    Column("host", TEXT, "the machine; absent where nothing tells it"),
    Column("recording", TEXT, "the file of the rank"),
    Column("torch_version", TEXT, "torch that recorded it"),
    Column("slowest_ns", FLOAT, "a step's time on the rank where it is longest"),
    Column("slowest_rank", INT, "that rank"),
    Column("slowest_host", TEXT, "its host"),
    Column("middle_ns", FLOAT, "a step's time on the median rank, of an even number the lower"),
    Column("middle_rank", INT, "that rank"),
    Column("middle_host", TEXT, "its host"),
    Column("fastest_ns", FLOAT, "a step's time on the rank where it is shortest"),
    Column("fastest_rank", INT, "that rank"),
    Column("fastest_host", TEXT, "its host"),
    Column("step_ns", FLOAT, "wall time of the usual step"),
    Column("work_ns", FLOAT, "device time of a step without collectives"),
    Column("step_waiting_ns", FLOAT, "how long it waits for last ranks in a step, if all are there"),
    Column("least_step_waiting_ns", FLOAT, "how long at least it waits for last ranks in a step"),
    Column("least_waiting_ns", INT, "how long at least was waited for last ranks"),
    Column("most_transfer_ns", INT, "the rest of their time: transfer, and further waiting"),
    Column("incomplete", INT, "launches of which not every rank of the group is there"),
    Column("behind_ns", FLOAT, "how much later than the median rank it comes, in a step"),
    Column("times", FLOAT, "how many times as long as on the median rank"),
    Column("excess_ns", FLOAT, "how much longer than on the median rank, in a step"),
    Column("straggler", TEXT, "in what it is behind the others"),
    Column("last_rank", INT, "the rank that came last most often"),
    Column("last_host", TEXT, "its host"),
    Column("last_times", INT, "to how many of the collectives it came last"),
    Column("collectives", INT, "how many collectives tell it"),
    Column("shift_ns", INT, "what is added to the rank's wall clock"),
    Column("residual_ns", INT, "median distance of its collectives' ends from the median rank's"),
    Column("reason", TEXT, "why it is not in the tables"),
    Column("found", TEXT, "what was found"),
)
JOB_COLUMNS = {**COLUMNS, **{column.name: column for column in _OF_JOBS}}
"""All columns that a job's tables have."""
