"""Artifacts that travel: to another cache folder, or saved and loaded by themselves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import profiler_ext
from profiler_ext.recall.lines import as_recorded
from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.provenance import CallSite, FxNode, GraphInstance
from profiler_ext.records.vocabulary import CacheState
from tests.capture.twins import first, graphs, no_kernels, train
from tests.compiling import TWICE_LINES, fresh_torch, torch, twice

__all__ = ["fresh_torch", "no_kernels"]

pytestmark = [
    pytest.mark.usefixtures("no_kernels"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]

NodeSnapshot = list[tuple[tuple[CallSite, ...], tuple[FxNode, ...]]]


@pytest.fixture(autouse=True)
def functions_are_cached() -> Iterator[None]:
    with torch._functorch.config.patch(autograd_cache_allow_custom_autograd_functions=True):
        yield


def snapshot(found: tuple[GraphInstance, ...]) -> NodeSnapshot:
    """All that decides the rows of a table, but for the truth that a line comes from."""
    known = (graph for graph in found if graph.provenance)
    return [(graph.call_sites, as_recorded(graph.nodes)) for graph in known]


def elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go on as on another machine: nothing compiled, an empty cache."""
    torch._dynamo.reset()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "elsewhere"))


def test_saved_cache_artifacts_bring_the_same_attribution_into_another_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.compiler._cache.CacheArtifactManager.clear()
    cold = train(first)
    saved = torch.compiler.save_cache_artifacts()
    assert saved is not None
    elsewhere(tmp_path, monkeypatch)
    torch.compiler.load_cache_artifacts(saved[0])
    warm = train(first)
    assert [graph.cache_state for graph in warm] == [CacheState.AOT_HIT] * 2
    assert [graph.cache_detail for graph in warm] == ["AOTAutograd's cache: hit"] * 2
    assert snapshot(warm) == snapshot(cold)
    assert {node.lineage.evidence for graph in warm for node in graph.nodes} == {
        LineEvidence.FRESH_DYNAMO
    }


@pytest.mark.parametrize("form", ["binary", "unpacked"])
def test_a_standalone_artifact_brings_its_attribution(
    form: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "saved")
    given = torch.ones(8, 8), torch.ones(8, 8)

    def save(gm: Any, inputs: Any) -> Any:
        artifact = torch._inductor.standalone_compile(gm, inputs, dynamic_shapes="from_graph")
        artifact.save(path=path, format=form)
        return lambda *values: artifact(*values)

    def load(gm: Any, inputs: Any) -> Any:
        artifact = torch._inductor.CompiledArtifact.load(path=path, format=form)
        return lambda *values: artifact(*values)

    profiler_ext.enable(strict=True, cpu_events=False)
    torch.compile(twice, backend=save)(*given)
    elsewhere(tmp_path, monkeypatch)
    torch.compile(twice, backend=load)(*given)
    torch._inductor.CompiledArtifact.load(path=path, format=form)(*given)
    cold, warm, try_run = graphs()
    assert snapshot((warm, try_run)) == snapshot((cold, cold))
    assert [node.lineage.stack[-1].line for node in cold.nodes] == list(TWICE_LINES)
    assert [{n.lineage.evidence for n in graph.nodes} for graph in (cold, warm, try_run)] == [
        {LineEvidence.COMPILED},
        {LineEvidence.FRESH_DYNAMO},
        {LineEvidence.RECORDED},
    ]
