"""Owns columns of flow ids: which arrows begin or end at a row, encoded together."""

from __future__ import annotations

import numpy as np
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from profiler_ext.exporters.perfetto.byte_columns import Cells, hstack, offsets_of, fixed_integers
from profiler_ext.exporters.perfetto.fields import key_of
from profiler_ext.records import Ints

FROM = key_of(pb.TrackEvent, "flow_ids")
TO = key_of(pb.TrackEvent, "terminating_flow_ids")


class FlowIds:
    """The arrows of one direction."""

    def __init__(self, direction: bytes, rows: Ints, ids: Ints) -> None:
        """Take the arrows.

        Args:
            direction: ``FROM`` or ``TO``.
            rows: the row of each.
            ids: its id; those of one row keep their order.
        """
        self._direction, self._ids = direction, ids[np.argsort(rows, kind="stable")]
        self._bounds = offsets_of(np.bincount(rows))

    def cells(self, first_id: int, rows: Ints) -> Cells | None:
        """Return the arrows of rows, encoded; ``None`` where none has any.

        Args:
            first_id: what to add to every id.
            rows: the rows.
        """
        last = len(self._bounds) - 1
        firsts = self._bounds[np.minimum(rows, last)]
        bounds = offsets_of(self._bounds[np.minimum(rows + 1, last)] - firsts)
        if not bounds[-1]:
            return None
        at = np.repeat(firsts - bounds[:-1], np.diff(bounds)) + np.arange(bounds[-1])
        ids = fixed_integers(self._ids[at] + first_id)
        return Cells(hstack(len(at), self._direction, ids), bounds)
