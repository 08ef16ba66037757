"""Owns calls of modules and of checkpoints in a trace that was recorded ``with_stack``."""

from __future__ import annotations

import numpy as np

from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, Rows, flag_rows
from profiler_ext.attribution.trace.nesting import nest
from profiler_ext.kineto import python_calls
from profiler_ext.records import Events


class PythonCalls:
    """Tells of each CPU event whether a module's forward, or a recomputation, was under way.

    Attributes:
        module: the innermost call of a module around each event, or ``NO_ROW``.
        recomputation: what runs a forward again within the engine around each event; ``NO_ROW``
            where there is none, or where that has called the engine again, for a backward.
    """

    def __init__(self, events: Events, is_engine: Flags) -> None:
        """Look at a trace.

        Args:
            events: its events.
            is_engine: the rows at which autograd's engine evaluates a node.
        """
        is_python = flag_rows(events.category, python_calls.is_python)
        is_module = is_python & flag_rows(events.name, python_calls.is_call_of_module)
        is_recomputation_row = is_python & flag_rows(events.name, python_calls.is_recomputation)
        self.module = self.recomputation = np.broadcast_to(np.int32(NO_ROW), len(events))
        if is_module.any() or is_recomputation_row.any():
            nesting = nest(events, is_module | is_recomputation_row)
            self.module = nesting.nearest(is_module)
            self.recomputation = _unless_around(nesting.nearest(is_recomputation_row | is_engine), is_recomputation_row)


def _unless_around(nearest: Rows, wanted: Flags) -> Rows:
    """Leave out where the nearest of two kinds is not of the wanted one."""
    rows: Rows = np.where((nearest != NO_ROW) & wanted[nearest], nearest, np.int32(NO_ROW))
    return rows
