"""Owns columns of flow ids: which arrows begin or end at a row, encoded together."""

from __future__ import annotations

import numpy as np
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from profiler_ext.exporters.perfetto.byte_columns import (
    Pieces,
    behind,
    cut,
    fixed_integers,
    grouped,
)
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
        order = np.argsort(rows, kind="stable")
        self._direction, self._rows, self._ids = direction, rows[order], ids[order]

    def encoded(self, first_id: int, rows: Ints) -> Pieces | None:
        """Return the arrows of rows, encoded, a piece for each; ``None`` where none has any.

        Args:
            first_id: what to add to every id.
            rows: the rows.
        """
        firsts = np.searchsorted(self._rows, rows)
        counts = np.searchsorted(self._rows, rows, "right") - firsts
        if not counts.any():
            return None
        bounds = np.concatenate(([0], np.cumsum(counts)))
        at = np.repeat(firsts - bounds[:-1], counts) + np.arange(bounds[-1])
        every = cut(behind(self._direction, fixed_integers(self._ids[at] + first_id)))
        return grouped([every], bounds)
