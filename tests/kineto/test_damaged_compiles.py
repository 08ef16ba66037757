"""What a file says of compiling is read back as it was written, or refused in a sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiler_ext.errors import TraceError
from profiler_ext.kineto.recording import read_recording, write_recording
from profiler_ext.records.compiles import Compilation, CompilePhase, CompileSpan, CompileTime
from profiler_ext.records.consistency import inconsistency_of_session
from profiler_ext.records.recording import Recording, Settings
from tests.exporters.test_compiles import AGAIN, COMPILES, FORWARD, analysis


def again(folder: Path, *compiles: Compilation) -> Recording:
    path = folder / "session.pt.trace.json.gz"
    write_recording(path, replace(analysis().recording, compiles=compiles))
    return read_recording(path)


def test_compilations_are_read_back_as_they_were(tmp_path: Path) -> None:
    assert again(tmp_path, *COMPILES).compiles == COMPILES


def test_a_file_without_compilations_is_read(tmp_path: Path) -> None:
    assert again(tmp_path).compiles == ()


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"duration_ns": 99}, "compile 0: 100 ns in its phases, expected the 99 that it took"),
        ({"duration_ns": -1, "times": (CompileTime(CompilePhase.OTHER, -1),)}, "-1 ns in its"),
        ({"duration_ns": 2**62, "times": ()}, "compilations of more time than a clock counts"),
        ({"spans": (CompileSpan("a", CompilePhase.OTHER, 0, -1, 0),)}, "a duration below 0"),
        ({"graphs": (2,)}, "a graph that is none of the 2"),
        ({"graphs": (-1,)}, "a graph that is none of the 2"),
        ({"times": (CompileTime(CompilePhase.DYNAMO, 100, 5),)}, "a graph that is none of the 2"),
    ],
)
def test_compilations_that_do_not_hold_together_are_inconsistent(
    changed: dict[str, Any], problem: str
) -> None:
    graphs = analysis().recording.graphs
    found = inconsistency_of_session(Settings(), graphs, (replace(AGAIN, **changed),))
    assert problem in (found or "nothing")
    assert inconsistency_of_session(Settings(), graphs, (AGAIN, FORWARD)) is None


def test_a_file_with_such_compilations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="profilerExt: compile 1: 100 ns in its phases"):
        again(tmp_path, FORWARD, replace(AGAIN, duration_ns=5))
