"""Owns what each CPU event says of a device that waits, while it is the innermost."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, flag_rows
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.kineto import classify, names, waits
from profiler_ext.records import Events, IdleCause

CAUSES = tuple(IdleCause)
Causes = npt.NDArray[np.int8]
"""Numbers of causes, of which there are few: a byte for each piece of each thread's time."""
NO_CAUSE = np.int8(-1)
"""What stands for the cause of time in which no event says anything."""


def code(cause: IdleCause) -> np.int8:
    """Return the number of a cause."""
    return np.int8(CAUSES.index(cause))


def is_of(causes: Causes, wanted: Iterable[IdleCause]) -> Flags:
    """Flag the causes that are among some.

    Args:
        causes: numbers of causes.
        wanted: the causes.

    Returns:
        A flag for each.
    """
    flags: Flags = np.isin(causes, [code(each) for each in wanted])
    return flags


def causes_of(events: Events, nesting: Nesting) -> Causes:
    """Return for each event why a device waits while it is the CPU's innermost.

    Args:
        events: the trace's events.
        nesting: which of them stands in which.

    Returns:
        Numbers of causes; what a step alone spans, or is no CPU event, says ``NOTHING``.
    """
    named, is_call = events.name, flag_rows(events.category, classify.is_runtime_call)
    is_op = flag_rows(events.category, classify.is_op)
    rules = (
        (_within(events, nesting, waits.is_compiling_or_recording), IdleCause.COMPILING),
        (_within(events, nesting, waits.is_data_loader), IdleCause.DATA_LOADER),
        (_within(events, nesting, waits.is_host_collective), IdleCause.OTHER_RANK),
        (is_call & flag_rows(named, waits.is_device_wait), IdleCause.SYNCHRONISATION),
        (is_call & flag_rows(named, waits.is_allocation), IdleCause.ALLOCATING),
        (is_op & _of_engine(events, nesting), IdleCause.AUTOGRAD),
        (is_call | is_op | flag_rows(named, waits.is_calling), IdleCause.LAUNCHING),
        (flag_rows(named, classify.is_step), None),
    )
    conditions = [(nesting.depth == NO_ROW), *(condition for condition, _ in rules)]
    codes = [NO_CAUSE, *(NO_CAUSE if each is None else code(each) for _, each in rules)]
    causes: Causes = np.select(conditions, codes, default=code(IdleCause.PYTHON))
    return causes


def engine_events(events: Events, nesting: Nesting) -> Flags:
    """Flag what runs in autograd's engine.

    Args:
        events: the trace's events.
        nesting: which of them stands in which.

    Returns:
        A flag for each event.
    """
    return _within(events, nesting, classify.is_engine)


def _within(events: Events, nesting: Nesting, predicate: Callable[[str], bool]) -> Flags:
    within: Flags = nesting.nearest(flag_rows(events.name, predicate)) != NO_ROW
    return within


def _of_engine(events: Events, nesting: Nesting) -> Flags:
    """Flag what the engine does itself: evaluating a node, and the node but for its ops."""
    evaluates = flag_rows(events.name, lambda name: names.evaluated_function(name) is not None)
    is_node = ~flag_rows(events.name, _is_work)
    of_engine: Flags = evaluates | (is_node & np.append(evaluates, False)[nesting.parent])
    return of_engine


def _is_work(name: str) -> bool:
    is_graph = classify.is_compiled_backward(name) or classify.is_compiled_frame(name)
    return is_graph or classify.is_dispatched_op(name) or classify.is_generated_kernel(name)
