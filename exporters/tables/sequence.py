"""The table of one joint graph: the forward op of each backward op."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from profiler_ext.exporters.tables.schema import COLUMNS, frame
from profiler_ext.exporters.tables.table import Table, gather
from profiler_ext.printable import printable

# Names in torch's own tests that differ from those of the other tables.
_NAMES = {"seq_nr": "SeqNr", "original_aten": "OrigAten", "source_fn": "SrcFn"}
_SHOWN = ["SeqNr", "OrigAten", "SrcFn", "phase", "module", "line", "forward_node", "node"]


@dataclass(frozen=True, slots=True)
class SequenceRow:
    """One node of a joint graph."""

    seq_nr: int | None  # torch's trace-time number, counted from the graph's first node
    original_aten: str  # before decomposition
    source_fn: str | None  # innermost model function, of the forward for a backward node
    phase: str
    module: str | None  # path; of the forward for a backward node
    line: int | None
    forward_node: str | None  # the node that it differentiates
    node: str
    file: str | None
    autograd_backward: bool | None  # torch's tag; ``None`` where this torch has none
    annotation: str | None  # the user's own labels


def seq_table(rows: Sequence[SequenceRow]) -> Table:
    """Return one row per node of a joint graph, in graph order, with torch's own column names."""
    every, columns = np.arange(len(rows)), {}
    for field in fields(SequenceRow):
        name = _NAMES.get(field.name, field.name)
        values = [getattr(row, field.name) for row in rows]
        columns[name] = gather(values, every, COLUMNS[name].dtype)
    return frame(columns)


def seq_text(table: Table) -> str:
    """Return the table of :func:`seq_table` as aligned text."""
    texts = [[name, *map(printable, _cells(table[name].tolist()))] for name in _SHOWN]
    widths = [max(map(len, column)) for column in texts]
    rows = (
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in zip(*texts, strict=True)
    )
    return "\n".join(rows) + "\n"


def _cells(values: Iterable[object]) -> Iterator[str]:
    return ("" if value is None else str(value) for value in values)
