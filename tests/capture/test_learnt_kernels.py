"""What a graph's library calls launch is kept beside its record, for a process that comes late."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.graphs.registry import Registry
from profiler_ext.isolation.guard import Guard
from profiler_ext.records import CallSite, GapReason, GraphInstance, Provenance, SiteKind
from profiler_ext.store import to_bytes, with_digest, work_digest
from tests.compiling import fresh_torch
from tests.fx_nodes import changed
from tests.store.records import record

__all__ = ["fresh_torch"]

KERNELS = ((1, ("cublas", "splitK", "cublas")),)
MM = CallSite(1, "1", SiteKind.EXTERN, "extern_kernels.mm", "aten::mm", ("mul_0",), (1,))
WHOLE = record()
WHOLE = with_digest(dataclasses.replace(WHOLE, call_sites=(*WHOLE.call_sites, MM)))


class Artifact:
    """A cached artifact that carries a record."""

    _fx_graph_cache_key = "fkey"
    cache_key = ""
    source_code = ""
    inductor_post_grad_graph_str = ""
    fx_kwargs: ClassVar = {}

    def __init__(self, provenance: Provenance) -> None:
        self._profiler_ext_v1 = to_bytes(provenance)


def ready(artifact: Any, *, is_replayed: bool = True) -> tuple[Registry, GraphInstance]:
    """Make an artifact ready in a process of its own."""
    registry = Registry(Compiles(), Guard(strict=True))
    index = registry.register(artifact, False, is_replayed, 0)
    return registry, registry.graphs[index]


def test_kernels_are_kept_for_another_process_and_damage_is_told_by_name(fresh_torch: Path) -> None:
    artifact = Artifact(WHOLE)
    registry, first = ready(artifact)
    assert (first.library_kernels, first.stored_kernels) == ((), ())
    registry.learn(first.index, KERNELS)
    assert registry.graphs[0].library_kernels == KERNELS
    _, again = ready(artifact)
    assert (again.library_kernels, again.stored_kernels, again.gaps) == ((), KERNELS, ())
    assert ready(artifact, is_replayed=False)[1].stored_kernels == ()
    (kept,) = fresh_torch.rglob("*.kernels.json")
    kept.write_bytes(b"{")
    _, forward = ready(artifact)
    assert [gap.reason for gap in forward.gaps] == [GapReason.RECORD_UNREADABLE]
    assert (forward.stored_kernels, forward.gaps[0].detail.split(":")[0]) == ((), kept.name)


def test_what_a_later_call_does_not_tell_stays_as_an_earlier_one_told_it(
    fresh_torch: Path,
) -> None:
    registry, graph = ready(Artifact(WHOLE))
    for kernels in (((1, ("tried out",)), (4, ("cublas",))), KERNELS, ()):
        registry.learn(graph.index, kernels)
    assert registry.graphs[0].library_kernels == (*KERNELS, (4, ("cublas",)))


def test_calls_teach_until_one_records_the_graph(fresh_torch: Path) -> None:
    artifact = Artifact(WHOLE)
    registry, graph = ready(artifact)
    assert [registry.take_unlearnt(artifact) for _ in range(5)] == [graph] * 4 + [None]
    registry, graph = ready(artifact)
    assert registry.take_unlearnt(artifact) == graph
    registry.keep_copies(artifact, ((),))
    assert registry.take_unlearnt(artifact) is None


def test_equal_work_on_other_lines_is_equal_and_other_shapes_are_not() -> None:
    (node,) = WHOLE.nodes
    moved = changed(node, stack=(dataclasses.replace(node.lineage.stack[0], line=9),))
    other = dataclasses.replace(node, target="aten.add")
    digests = [work_digest(dataclasses.replace(WHOLE, nodes=(n,))) for n in (node, moved, other)]
    assert (digests[0] == digests[1], digests[0] == digests[2]) == (True, False)
