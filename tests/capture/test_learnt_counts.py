"""What a graph's library calls launch is kept beside its record, for a process that comes late."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.graphs.registry import Registry
from profiler_ext.guard import Guard
from profiler_ext.records import CallSite, GapReason, GraphInstance, Provenance, SiteKind
from profiler_ext.store import to_bytes, with_digest, work_digest
from tests.compiling import fresh_torch
from tests.store.records import record

__all__ = ["fresh_torch"]

COUNTS = ((1, 3),)
MM = CallSite(1, "1", SiteKind.EXTERN, "extern_kernels.mm", "aten::mm", ("mul_0",), (1,))
WHOLE = record()
WHOLE = with_digest(dataclasses.replace(WHOLE, call_sites=(*WHOLE.call_sites, MM)))


class Artifact:
    """A cached artifact that carries a record."""

    _fx_graph_cache_key = "fkey"

    def __init__(self, provenance: Provenance) -> None:
        self._profiler_ext_v1 = to_bytes(provenance)


def ready(artifact: Any, *, is_replayed: bool = True) -> tuple[Registry, GraphInstance]:
    """Make an artifact ready in a process of its own."""
    registry = Registry(Compiles(), Guard(strict=True))
    return registry, registry.register(artifact, False, is_replayed, 0)


def test_counts_are_kept_for_another_process_and_damage_is_told_by_name(fresh_torch: Path) -> None:
    artifact = Artifact(WHOLE)
    registry, first = ready(artifact)
    assert (first.library_counts, first.stored_counts) == ((), ())
    registry.learn(first.index, COUNTS)
    assert registry.graphs[0].library_counts == COUNTS
    _, again = ready(artifact)
    assert (again.library_counts, again.stored_counts, again.gaps) == ((), COUNTS, ())
    assert ready(artifact, is_replayed=False)[1].stored_counts == ()
    (kept,) = fresh_torch.rglob("*.counts.json")
    kept.write_bytes(b"{")
    _, forward = ready(artifact)
    assert [gap.reason for gap in forward.gaps] == [GapReason.RECORD_UNREADABLE]
    assert (forward.stored_counts, forward.gaps[0].detail.split(":")[0]) == ((), kept.name)


def test_equal_work_on_other_lines_is_equal_and_other_shapes_are_not() -> None:
    (node,) = WHOLE.nodes
    moved = dataclasses.replace(node, stack=(dataclasses.replace(node.stack[0], line=9),))
    other = dataclasses.replace(node, target="aten.add")
    digests = [work_digest(dataclasses.replace(WHOLE, nodes=(n,))) for n in (node, moved, other)]
    assert (digests[0] == digests[1], digests[0] == digests[2]) == (True, False)
