"""Of a graph that is ready only bytes are kept until it is asked for; then it is as it was."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

import profiler_ext
from profiler_ext.errors import CaptureWarning
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import FxNode, GraphInstance
from profiler_ext.torch_compat import points
from profiler_ext.torch_compat.patches import installed
from tests.compiling import TWICE_LINES, capture, train_once


def fails(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken on purpose")


def nodes_alive() -> int:
    gc.collect()
    return sum(type(thing) is FxNode for thing in gc.get_objects())


def last_lines(graph: GraphInstance) -> set[tuple[str, int]]:
    frames = [node.lineage.stack[-1] for node in graph.nodes if node.lineage.stack]
    return {(frame.file, frame.line) for frame in frames}


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.parametrize("is_warm", [pytest.param(False, marks=pytest.mark.whole), True])
def test_nothing_of_a_graph_is_decoded_before_it_is_asked_for(
    is_warm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiler_ext.enable(strict=True)
    if is_warm:
        train_once()
    before = nodes_alive()
    with monkeypatch.context() as patched:
        patched.setattr("profiler_ext.store.encoding.nested", fails)
        train_once()
    assert nodes_alive() == before
    asked = capture().graphs[-2:]
    assert nodes_alive() > before
    assert {line for graph in asked for _, line in last_lines(graph)} == set(TWICE_LINES)


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.parametrize("is_warm", [False, True])
def test_where_the_program_goes_meanwhile_changes_no_path(is_warm: bool, tmp_path: Path) -> None:
    profiler_ext.enable(strict=True)
    if is_warm:
        train_once()
    train_once()
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        found = {file for graph in capture().graphs[-2:] for file, _ in last_lines(graph)}
    finally:
        os.chdir(here)
    assert found == {str(Path(__file__).parents[1] / "compiling.py")}


@pytest.mark.usefixtures("fresh_torch")
def test_what_is_kept_holds_neither_the_artifact_nor_the_module_nor_its_tensors() -> None:
    artifacts: list[Any] = []

    def seen(call: Observed) -> Observation:
        artifacts.append(weakref.ref(call["self"]))
        yield

    profiler_ext.enable(strict=True)
    for _ in range(2):
        torch._dynamo.reset()
        with installed([(points.ARTIFACT_CALL, seen)], Guard(strict=True)):
            model = torch.nn.Linear(4, 4)
            torch.compile(model)(torch.ones(2, 4)).sum().backward()
        held = [*artifacts, weakref.ref(model), *map(weakref.ref, model.parameters())]
        del model
        torch._dynamo.reset()
        gc.collect()
        assert [reference() for reference in held] == [None] * len(held)
    assert len(artifacts) >= 4
    assert all(graph.is_known and graph.nodes for graph in capture().graphs)


@pytest.mark.usefixtures("fresh_torch")
def test_what_cannot_be_read_any_more_is_a_gap_of_that_graph_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profiler_ext.enable()
    train_once()
    first = capture().graphs
    train_once()
    monkeypatch.setattr("profiler_ext.recall.lines.from_dynamo", fails)
    with pytest.warns(CaptureWarning, match="broken on purpose"):
        graphs = capture().graphs
    assert graphs[:2] == first
    assert [(graph.provenance, graph.nodes) for graph in graphs[2:]] == [(None, ())] * 2
    assert {gap.reason for graph in graphs[2:] for gap in graph.gaps} == {GapReason.CAPTURE_FAILED}
    assert {gap.detail.partition(":")[0] for gap in capture().gaps} == {"recall"}
    assert capture().graphs == graphs
