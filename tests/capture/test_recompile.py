"""Graphs that a cache has from a run without capture are compiled once more where it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

import profiler_ext
from profiler_ext.profiling import switch
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.records.vocabulary import CacheState
from tests.compiling import expected_gradient, fresh_torch, torch, train_once

__all__ = ["fresh_torch"]

MISS, HIT, FX_HIT = CacheState.MISS, CacheState.AOT_HIT, CacheState.FX_HIT


def trained(**options: bool) -> tuple[GraphInstance, ...]:
    """The graphs of a process of its own."""
    profiler_ext.disable()
    profiler_ext.enable(strict=True, **options)
    assert torch.equal(train_once(), expected_gradient())
    capture = switch.current()
    assert capture is not None
    return capture.graphs


def reported(graphs: tuple[GraphInstance, ...]) -> list[tuple[CacheState, bool]]:
    """How each graph came to be, and whether its record is known."""
    records = [graph.provenance for graph in graphs]
    known = [record is not None and not record.is_inferred for record in records]
    return [(graph.cache_state, is_known) for graph, is_known in zip(graphs, known, strict=True)]


@pytest.mark.parametrize(("bundled", "compiled"), [(False, MISS), (True, CacheState.BYPASS)])
@pytest.mark.usefixtures("fresh_torch")
def test_only_what_has_no_record_is_compiled_once_more_and_then_it_is_a_hit(
    bundled: bool, compiled: CacheState
) -> None:
    with torch._functorch.config.patch(bundled_autograd_cache=bundled):
        train_once()
        without = trained()
        assert reported(without) == [(HIT, False)] * 2
        assert [gap.reason for gap in without[0].gaps] == [GapReason.GRAPH_NOT_CAPTURED]
        assert "--recompile" in without[0].gaps[0].detail
        once_more = trained(recompile=True)
        assert reported(once_more) == [(compiled, True)] * 2
        assert [graph.key for graph in once_more] == [graph.key for graph in without]
        assert reported(trained(recompile=True)) == [(HIT, True)] * 2
        assert reported(trained()) == [(HIT, True)] * 2


def test_a_record_in_the_store_is_enough(
    fresh_torch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFILER_EXT_RIDE", "0")
    trained()
    assert reported(trained(recompile=True)) == [(HIT, True)] * 2
    (damaged, _) = sorted(fresh_torch.rglob("*.pxpr"))
    damaged.write_bytes(b"")
    states = sorted(reported(trained(recompile=True)))
    assert (states.count((MISS, True)), states.count((FX_HIT, True))) == (1, 1)


@pytest.mark.usefixtures("fresh_torch")
def test_where_torch_shall_raise_on_a_miss_nothing_is_compiled_once_more() -> None:
    with torch._functorch.config.patch(strict_autograd_cache=True):
        train_once()
        assert reported(trained(recompile=True)) == [(HIT, False)] * 2
