"""Of graphs that nothing can run any more a row is left, and of the last ones all."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from profiler_ext.capture.graphs import registry as registry_of_graphs
from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.graphs.library_calls import process_store
from profiler_ext.capture.graphs.registered_graph import RegisteredGraph
from profiler_ext.capture.graphs.registry import Registry
from profiler_ext.isolation.guard import Guard
from profiler_ext.recall.generated_code import GeneratedCode
from profiler_ext.recall.provenance_lookup import ReadyArtifact
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.records.vocabulary import CacheState
from profiler_ext.torch_compat import inductor

CODE = GeneratedCode("", "", is_backward=False, is_inference=False, torch_version="2.13.0")


class Artifact:
    """What a graph's calls are methods of."""


class Recording:
    """Who records."""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setattr(registry_of_graphs, "_MAX_COLLECTED", 1)
    monkeypatch.setattr(inductor, "cache_dir", lambda: str(tmp_path))
    return Registry(Compiles(), Guard(strict=True))


def add(registry: Registry, artifact: object) -> int:
    about = GraphInstance(
        index=-1,
        key="key",
        compile_id="0/0",
        is_backward=False,
        cache_state=CacheState.MISS,
        cache_detail="FX graph cache: miss",
        compile_ns=7,
        output_module="/cache/ab.py",
        library_kernels=((0, ("gemm",)),),
    )
    ready = ReadyArtifact(key="key", code=lambda: CODE, is_compiled=True)
    store = process_store()
    kept = RegisteredGraph(about, ready, store, registry._guard, is_replayed=False)
    return registry._add(artifact, kept, is_replayed=True)


def gone(registry: Registry) -> list[bool]:
    return [
        [gap.reason for gap in graph.gaps] == [GapReason.GRAPH_GONE] for graph in registry.graphs
    ]


def test_of_graphs_that_are_gone_the_last_ones_are_whole_and_of_others_a_row_is_left(
    registry: Registry,
) -> None:
    for _ in range(3):
        add(registry, Artifact())
    alive = Artifact()
    add(registry, alive)
    assert gone(registry) == [True, True, False, False]
    first, *_, last = registry.graphs
    assert (first.index, first.key, first.compile_id, first.compile_ns) == (0, "key", "0/0", 7)
    assert (first.provenance, first.nodes, first.library_kernels) == (None, (), ())
    assert first.output_module is None
    assert last.output_module == "/cache/ab.py"
    over = [registry._unprofiled.is_profiled(at) for at in range(4)]
    assert over == [True, True, False, False]
    assert registry.index_of(alive) == 3


def test_what_ran_in_a_recording_is_whole_until_it_is_over(registry: Registry) -> None:
    recording = Recording()
    registry.hold(recording)
    for _ in range(4):
        add(registry, Artifact())
    assert gone(registry) == [False] * 4
    registry.release(recording)
    registry.hold(recording)
    assert gone(registry) == [True] * 3 + [False]


def test_a_recording_that_nobody_has_any_more_holds_nothing(registry: Registry) -> None:
    registry.hold(Recording())
    gc.collect()
    for _ in range(3):
        add(registry, Artifact())
    assert gone(registry) == [True, False, False]


def test_all_graphs_of_an_artifact_go_with_it(registry: Registry) -> None:
    twice = Artifact()
    assert [add(registry, twice), add(registry, twice)] == [0, 1]
    assert registry.index_of(twice) is None
    del twice
    for _ in range(2):
        add(registry, Artifact())
    assert gone(registry) == [True, True, False, False]
