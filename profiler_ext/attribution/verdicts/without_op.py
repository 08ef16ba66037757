"""Owns why a launch has no operator that launched it."""

from __future__ import annotations

import numpy as np

from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.kineto import classify, names
from profiler_ext.records import Events, GapReason

REASONS_WITH_LINE = (GapReason.NO_LAUNCHING_OP, GapReason.OWN_CUDA_GRAPH)
"""What launched these is known but for an op: a line may have launched them."""


def missing_op_reason(
    events: Events, enqueued: EnqueuedLaunches, launch: int, is_unrecorded: bool
) -> GapReason:
    """Say why no operator launched it.

    The Python wrapper gives each launch of a generated kernel an event of its name; a replay of
    a CUDA graph that the program recorded has one call for all, and only a wrapper in C++ none,
    which outside every graph call is AOTInductor's.

    Args:
        events: the trace's events.
        enqueued: its launches.
        launch: index of one that no operator launched.
        is_unrecorded: operators of its thread were not recorded.
    """
    row, call, cpu = (
        int(column[launch]) for column in (enqueued.event, enqueued.call, enqueued.cpu)
    )
    if call == NO_ROW:
        is_linked = events.correlation[row] is not np.ma.masked
        return GapReason.NO_LAUNCH_CALL if is_linked else GapReason.NO_CORRELATION_ID
    if is_unrecorded:
        return GapReason.THREAD_NOT_RECORDED
    if names.is_graph_launch(events.name[call]):
        return GapReason.OWN_CUDA_GRAPH
    name = events.name[row]
    launched_by_wrapper = cpu != NO_ROW and events.name[cpu] == name
    if classify.is_generated_kernel(name) and not launched_by_wrapper:
        return GapReason.AOT_INDUCTOR
    return GapReason.NO_LAUNCHING_OP
