"""What is kept of compiled graphs in each state of the caches; keys and code stay the user's."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.codecache

import profiler_ext
from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.vocabulary import CacheState
from profiler_ext.torch_compat import inductor
from tests.compiling import TWICE_LINES, cache_keys, capture, generated_code, train_once


def fx_cache_off() -> Any:
    return torch._inductor.config.patch(fx_graph_cache=False)


def autograd_cache_off() -> Any:
    return torch._functorch.config.patch(enable_autograd_cache=False)


def test_keys_and_generated_code_are_the_same_with_and_without_capture(
    fresh_torch: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    train_once()
    keys, code = cache_keys(fresh_torch), generated_code(fresh_torch)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "other"))
    profiler_ext.enable(strict=True)
    train_once()
    assert cache_keys(tmp_path / "other") == keys
    assert generated_code(tmp_path / "other") == code
    assert len(code) == 2
    in_cache = {Path(entry).name for entry in keys if entry.startswith("fxgraph")}
    assert {graph.key for graph in capture().graphs} == in_cache


def lines_of(graph: Any) -> list[tuple[int, ...]]:
    lines = {node.name: node.lineage.stack[-1].line for node in graph.nodes if node.lineage.stack}
    return [tuple(lines[n] for n in site.nodes) for site in graph.provenance.call_sites]


@pytest.mark.usefixtures("fresh_torch")
def test_library_calls_are_attributed_to_their_node_and_line_forward_and_backward() -> None:
    profiler_ext.enable(strict=True)
    train_once()
    forward, backward = capture().graphs
    first, second = TWICE_LINES
    assert lines_of(forward) == [(first,), (second,)]
    assert lines_of(backward) == [(second,), (first,)]
    links = {node.name: node.lineage.forward_node for node in backward.nodes}
    assert [links[site.nodes[0]] for site in backward.provenance.call_sites] == ["mm_1", "mm"]
    assert forward.provenance.joint == backward.provenance.joint
    assert [s.op for s in forward.provenance.call_sites] == ["aten::mm", "aten::mm"]


@pytest.mark.usefixtures("fresh_torch")
def test_each_state_of_the_caches_is_reported_and_gives_the_same_lines() -> None:
    profiler_ext.enable(strict=True)
    train_once()
    train_once()
    with autograd_cache_off():
        train_once()
    states = [graph.cache_state for graph in capture().graphs]
    assert states == [
        *(CacheState.MISS,) * 2,
        *(CacheState.AOT_HIT,) * 2,
        *(CacheState.FX_HIT,) * 2,
    ]
    evidence = [{n.lineage.evidence for n in graph.nodes} for graph in capture().graphs]
    assert evidence == [
        *({LineEvidence.COMPILED},) * 2,
        *({LineEvidence.FRESH_DYNAMO},) * 2,
        *({LineEvidence.FRESH_GRAPH},) * 2,
    ]
    forward, backward = capture().graphs[:2]
    for again in capture().graphs[2::2]:
        assert lines_of(again) == lines_of(forward)
        assert again.key == forward.key
    for again in capture().graphs[3::2]:
        assert lines_of(again) == lines_of(backward)
        assert [n.lineage.forward_node for n in again.nodes] == [
            n.lineage.forward_node for n in backward.nodes
        ]


@pytest.mark.usefixtures("fresh_torch")
def test_with_caches_off_a_graph_has_no_key_and_says_why() -> None:
    profiler_ext.enable(strict=True)
    with fx_cache_off(), autograd_cache_off():
        train_once()
    off = "FX graph cache: off; AOTAutograd's cache: off"
    found = [(g.key, g.cache_state, g.cache_detail) for g in capture().graphs]
    assert found == [(None, CacheState.BYPASS, off)] * 2
    assert lines_of(capture().graphs[0]) == [(line,) for line in TWICE_LINES]


def on_artifact(cache: Path) -> list[bool]:
    """Whether each artifact in the cache carries a provenance."""
    artifacts = [path for path in cache.glob("fxgraph/*/*/*") if path.is_file()]
    return [b"PXPR" in path.read_bytes() for path in artifacts]


def test_without_the_ride_the_store_gives_the_same(
    fresh_torch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFILER_EXT_RIDE", "0")
    profiler_ext.enable(strict=True)
    train_once()
    assert on_artifact(fresh_torch) == [False, False]
    train_once()
    forward, again = capture().graphs[0::2]
    assert (again.cache_state, again.provenance) == (CacheState.AOT_HIT, forward.provenance)


def test_without_the_store_the_artifact_gives_the_same(fresh_torch: Path) -> None:
    profiler_ext.enable(strict=True)
    train_once()
    assert on_artifact(fresh_torch) == [True, True]
    for file in fresh_torch.rglob("*.pxpr"):
        file.unlink()
    train_once()
    forward, again = capture().graphs[0::2]
    assert (again.cache_state, again.provenance) == (CacheState.AOT_HIT, forward.provenance)


@pytest.mark.usefixtures("fresh_torch")
def test_an_artifact_that_was_cached_without_capture_is_a_gap_with_the_remedy() -> None:
    train_once()
    profiler_ext.enable(strict=True)
    train_once()
    forward, _ = capture().graphs
    assert forward.provenance is not None and forward.provenance.is_inferred
    [gap] = forward.gaps
    assert gap.reason == GapReason.GRAPH_NOT_CAPTURED
    assert "profiler-ext run" in gap.detail
    assert "--recompile" in gap.detail


@pytest.mark.usefixtures("fresh_torch")
def test_what_a_child_process_left_in_the_cache_is_a_gap_of_its_own_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train_once()
    monkeypatch.setattr(inductor, "compiles_in_child", lambda: True)
    profiler_ext.enable(strict=True)
    train_once()
    assert {graph.cache_state for graph in capture().graphs} == {CacheState.AOT_HIT}
    [gap] = capture().graphs[0].gaps
    assert gap.reason == GapReason.COMPILED_IN_CHILD
    assert "unset TORCHINDUCTOR_FX_COMPILE_MODE" in gap.detail


def test_a_damaged_copy_in_the_store_is_a_gap_and_costs_no_graph(fresh_torch: Path) -> None:
    profiler_ext.enable()
    train_once()
    damaged = list(fresh_torch.rglob("*.pxpr"))
    for file in damaged:
        file.write_bytes(file.read_bytes()[:-5])
    train_once()
    forward, again = capture().graphs[0::2]
    assert again.provenance == forward.provenance
    assert [gap.reason for gap in again.gaps] == [GapReason.RECORD_UNREADABLE]
    assert {gap.detail.partition(": ")[0] for gap in again.gaps} < {file.name for file in damaged}


def test_a_store_that_cannot_be_written_is_a_gap_and_costs_no_graph(fresh_torch: Path) -> None:
    fresh_torch.mkdir()
    (fresh_torch / "profiler_ext").write_text("a file where the store's folder should be")
    profiler_ext.enable()
    train_once()
    assert [graph.is_backward for graph in capture().graphs] == [False, True]
    assert lines_of(capture().graphs[0]) == [(line,) for line in TWICE_LINES]
    assert [gap.reason for gap in capture().graphs[0].gaps] == [GapReason.RECORD_NOT_STORED]


@pytest.mark.usefixtures("fresh_torch")
def test_no_path_of_this_machine_s_home_or_working_folder_is_in_a_record() -> None:
    profiler_ext.enable(strict=True)
    train_once()
    for graph in capture().graphs:
        assert graph.provenance is not None
        files = {frame.file for node in graph.provenance.nodes for frame in node.lineage.stack}
        assert [
            file for file in files if file.startswith((str(Path.home()), str(Path.cwd())))
        ] == []
        assert {f.file for node in graph.nodes for f in node.lineage.stack} >= {
            str(Path(__file__).parent.with_name("compiling.py"))
        }
