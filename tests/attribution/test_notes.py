"""What a note advises: not what was asked for already."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.attribution.notes import notes_on
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Interned, Thread
from profiler_ext.records.gaps import GapReason
from tests.analyses import gpu_step
from tests.handmade import Mark


def noted(analysis: Analysis, reason: GapReason, *asked: str) -> str:
    """Return the note on launches that have a gap, where something was asked for."""
    launches = analysis.launches
    gap = Interned(np.zeros(len(launches), np.int32), (reason,))
    settings = replace(analysis.recording.settings, options=asked)
    notes = notes_on(replace(analysis.recording, settings=settings), replace(launches, gap=gap))
    (note,) = (each for each in notes if reason.meaning in each)
    return note


@pytest.mark.parametrize(
    ("asked", "advised", "left_out"),
    [
        ((), ["start the script with `profiler-ext run`", "--recompile"], []),
        (("run",), ["`profiler-ext run --recompile`"], ["start the script", "PROFILER_EXT=1"]),
        (("run", "recompile"), ["please report"], ["--recompile", "start the script"]),
        (("recompile",), ["please report"], ["--recompile"]),
    ],
)
def test_of_a_graph_that_was_not_captured(
    asked: tuple[str, ...], advised: list[str], left_out: list[str]
) -> None:
    note = noted(gpu_step(), GapReason.GRAPH_NOT_CAPTURED, *asked)
    assert [text for text in advised if text not in note] == []
    assert [text for text in left_out if text in note] == []


def queued(start_us: int, end_us: int, number: int) -> list[Mark]:
    """Return a kernel and the call that launched it at once."""
    called = {"correlation": number}
    main, stream = Thread(100, 100), Thread(0, 7)
    on_device = called | {"device": 0, "stream": 7}
    length_ns = 1000 * (end_us - start_us)
    return [
        Mark("cudaLaunchKernel", "cuda_runtime", main, number, 1, called),
        Mark("gemm", "kernel", stream, 1000 * start_us, length_ns, on_device),
    ]
