"""Analyses of recorded GPU traces in which every kernel is attributed to a made-up line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from profiler_ext.kineto.names import DEVICE_CATEGORIES
from profiler_ext.kineto.reader import read_trace
from profiler_ext.records.analysis import Analysis, Launches, Place
from profiler_ext.records.analysis import Shares as SharesColumns
from profiler_ext.records.events import Events
from profiler_ext.records.lineage import Frame
from profiler_ext.records.recording import Recording
from profiler_ext.records.vocabulary import Level, Phase
from tests.handmade import interned, ints, masked

H200 = Path(__file__).parents[1] / "fixtures" / "h200"


def recorded(name: str) -> Analysis:
    """Return an analysis of one recording: launch N belongs to line N of ``model.py``."""
    trace = read_trace(H200 / f"{name}.pt.trace.json.gz")
    rows = np.flatnonzero(trace.events.category.where(*DEVICE_CATEGORIES))
    rows = rows[np.argsort(trace.events.start_ns[rows], kind="stable")]
    count = len(rows)
    return Analysis(
        recording=Recording(trace),
        steps=(),
        launches=_launches(trace.events, rows),
        places=tuple(_place(number) for number in range(count)),
        shares=SharesColumns(
            np.arange(count),
            np.arange(count, dtype=np.int32),
            trace.events.duration_ns[rows],
        ),
    )


def _place(number: int) -> Place:
    frame = Frame("/src/model.py", number, "forward", f"x = step_{number}(x)")
    return Place(
        aten_op="aten.sin.default",
        phase=Phase.FORWARD,
        file=frame.file,
        line=frame.line,
        stack=(frame,),
        module=f"layers.{number % 4}",
        level=Level.LINE,
    )


def _launches(events: Events, rows: np.ndarray) -> Launches:
    count = len(rows)
    nothing = masked([None] * count)
    return Launches(
        event=rows,
        step=nothing,
        name=interned([events.name[row] for row in rows]),
        kernel=interned([""] * count),
        kind=interned(["eager"] * count),
        scope=interned(["eager"] * count),
        device=ints([0] * count),
        stream=events.stream[rows],
        start_ns=events.start_ns[rows],
        duration_ns=events.duration_ns[rows],
        phase=interned(["forward"] * count),
        graph=nothing,
        call_site=nothing,
        op_event=nothing,
        forward=nothing,
        correlation=events.correlation[rows],
        external_id=events.external_id[rows],
        level=interned(["line"] * count),
        evidence=interned(["call_order"] * count),
        mechanism=interned([""] * count),
        gap=interned([""] * count),
        share_evidence=interned([""] * count),
    )
