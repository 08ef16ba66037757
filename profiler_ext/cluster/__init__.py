"""Many ranks on Dask: workers read the files, and only aggregates travel."""

from profiler_ext.cluster.by_rank import dask_table, write_by_rank
from profiler_ext.cluster.engine import connected
from profiler_ext.cluster.gathering import read_job
from profiler_ext.cluster.job import TABLES, Job
from profiler_ext.cluster.outputs import picked, write_job
from profiler_ext.cluster.records import FileGap, RankGap

__all__ = [
    "TABLES",
    "FileGap",
    "Job",
    "RankGap",
    "connected",
    "dask_table",
    "picked",
    "read_job",
    "write_by_rank",
    "write_job",
]
