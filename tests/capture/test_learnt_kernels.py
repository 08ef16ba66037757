"""What a graph's library calls launch is kept beside its record, for a process that comes late."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from profiler_ext.attribution import attribute
from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.graphs.registry import Registry
from profiler_ext.capture.hooks.artifacts import ArtifactHooks
from profiler_ext.capture.hooks.installing import Capture
from profiler_ext.errors import CaptureWarning
from profiler_ext.isolation.guard import Guard
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import (
    CallSite,
    FxNode,
    GraphInstance,
    LibraryKernels,
    Provenance,
    TensorSpec,
)
from profiler_ext.records.vocabulary import SiteKind
from profiler_ext.store import to_bytes, with_digest, work_digest
from profiler_ext.torch_compat import accelerator
from tests.attribution.reading import rows
from tests.attribution.timeline import Timeline
from tests.compiling import fresh_torch
from tests.fx_nodes import changed, fx_node
from tests.store.records import record

__all__ = ["fresh_torch"]

KERNELS = ((1, ("cublas", "splitK", "cublas")),)
MM = CallSite(1, "1", SiteKind.EXTERN, "extern_kernels.mm", "aten::mm", ("mul_0",), (1,))
WHOLE = record()
WHOLE = with_digest(dataclasses.replace(WHOLE, call_sites=(*WHOLE.call_sites, MM)))


class Artifact:
    """A cached artifact that carries a record."""

    _fx_graph_cache_key: str | None = "fkey"
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


def test_kernels_are_kept_for_another_process_and_damage_is_named(
    fresh_torch: Path,
) -> None:
    artifact = Artifact(WHOLE)
    registry, first = ready(artifact)
    assert (first.library_kernels, first.stored_kernels) == ((), ())
    registry.keep_copies(artifact, ((),))
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


def learnt(artifact: Any, kernels: LibraryKernels = KERNELS) -> None:
    """Have a process learn what an artifact's library calls launch, and record its CUDA graph."""
    registry, graph = ready(artifact)
    assert registry.take_unprofiled(artifact) == graph
    registry.keep_copies(artifact, ((),))
    registry.learn(graph.index, kernels)


def learns_again(artifact: Any) -> bool:
    """Tell whether a process of its own profiles a call of the artifact."""
    registry, _ = ready(artifact)
    return registry.take_unprofiled(artifact) is not None


def of(site: CallSite, *nodes: FxNode) -> Artifact:
    """Return an artifact with a call site of a library."""
    sites, own = (*WHOLE.call_sites[:1], site), (*WHOLE.nodes, *nodes)
    return Artifact(with_digest(dataclasses.replace(WHOLE, call_sites=sites, nodes=own)))


def test_what_one_process_learnt_no_other_profiles_a_call_for(fresh_torch: Path) -> None:
    artifact = Artifact(WHOLE)
    learnt(artifact)
    assert not learns_again(artifact)
    other = Artifact(WHOLE)
    other._fx_graph_cache_key = "fother"
    assert learns_again(other)


def test_what_only_a_warm_up_reported_is_kept_for_no_other_process(fresh_torch: Path) -> None:
    artifact = Artifact(WHOLE)
    registry, graph = ready(artifact)
    registry.take_unprofiled(artifact)
    registry.learn(graph.index, KERNELS)
    assert (registry.graphs[0].library_kernels, ready(artifact)[1].stored_kernels) == (KERNELS, ())
    assert learns_again(artifact)


def _tells_other_device(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("profiler_ext.torch_compat.process.device_name", lambda: "NVIDIA H100")


def _sets_workspace(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def _is_deterministic(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(torch.backends.cudnn, "deterministic", True)


def _has_other_cublas(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(accelerator, "cublas_version", lambda: 1)


@pytest.mark.parametrize(
    "change",
    [_tells_other_device, _sets_workspace, _is_deterministic, _has_other_cublas],
)
def test_where_libraries_may_choose_others_each_learns_for_itself(
    change: Callable[[pytest.MonkeyPatch], None],
    fresh_torch: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    artifact = Artifact(WHOLE)
    learnt(artifact)
    with monkeypatch.context() as patch:
        change(patch)
        assert (learns_again(artifact), ready(artifact)[1].stored_kernels) == (True, ())
    assert not learns_again(artifact)


def test_what_is_found_fastest_by_trying_each_process_sees_for_itself(
    fresh_torch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convolution = of(dataclasses.replace(MM, kernel="extern_kernels.convolution"))
    product = of(MM)
    for is_tried_out in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(torch.backends.cudnn, "benchmark", is_tried_out)
            for artifact in (convolution, product):
                learnt(artifact)
            assert (learns_again(convolution), learns_again(product)) == (is_tried_out, False)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda.tunable, "is_enabled", lambda: True)
    assert learns_again(product)


def test_sizes_that_are_open_each_process_sees_for_itself(fresh_torch: Path) -> None:
    spec = TensorSpec("float32", ("s0", 4), (4, 1), "cuda")
    artifact = of(MM, fx_node("mm_0", "aten.mm", outputs=(spec,)))
    learnt(artifact)
    assert (learns_again(artifact), ready(artifact)[1].stored_kernels) == (True, KERNELS)


def test_what_no_process_saw_of_a_graph_the_next_one_adds(fresh_torch: Path) -> None:
    both = (*WHOLE.call_sites, dataclasses.replace(MM, ordinal=2, path="2"))
    artifact = Artifact(with_digest(dataclasses.replace(WHOLE, call_sites=both)))
    learnt(artifact)
    assert learns_again(artifact)
    learnt(artifact, ((2, ("cublas",)),))
    assert not learns_again(artifact)
    assert ready(artifact)[1].stored_kernels == (*KERNELS, (2, ("cublas",)))


def test_a_graph_without_a_key_is_learnt_of_in_each_process(fresh_torch: Path) -> None:
    artifact = Artifact(WHOLE)
    artifact._fx_graph_cache_key = None
    learnt(artifact)
    assert learns_again(artifact)


@pytest.mark.parametrize(
    ("ran", "gap"),
    [
        (("cublas", "splitK", "cublas", "other"), None),
        (("cublas", "splitK", "cublas"), "alignment_mismatch"),
        (("cublas", "cublas", "splitK", "other"), "alignment_mismatch"),
        (("cublas", "new", "cublas", "other"), "ambiguous_extern_run"),
    ],
)
def test_what_replays_contradict_leads_to_no_line_and_the_next_process_learns_again(
    ran: tuple[str, ...], gap: str | None, fresh_torch: Path
) -> None:
    both = (*WHOLE.call_sites, dataclasses.replace(MM, ordinal=2, path="2"))
    artifact = Artifact(with_digest(dataclasses.replace(WHOLE, call_sites=both)))
    learnt(artifact, (*KERNELS, (2, ("other",))))
    capture = Capture(cpu_events=False, strict=True)
    capture._registry.register(artifact, False, True, 0)
    timeline = Timeline()
    with timeline.forward("fkey"):
        timeline.replay("triton_poi", *ran)
    analysis = attribute(timeline.recording(*capture.graphs))
    assert rows(analysis, "call_site", "gap")[1:] == (
        [(None, gap)] * len(ran) if gap else [(at, "stale_source_line") for at in (1, 1, 1, 2)]
    )
    capture.learn(analysis)
    assert learns_again(artifact) == (gap is not None)


def test_where_it_cannot_be_reported_by_what_libraries_choose_a_graph_has_its_record(
    fresh_torch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerator, "choice_digest", lambda: 1 // 0)
    artifact, registry = Artifact(WHOLE), Registry(Compiles(), Guard())
    with pytest.warns(CaptureWarning, match="ZeroDivisionError"):
        registry.register(artifact, False, True, 0)
        (graph,) = registry.graphs
    assert (graph.is_known, graph.stored_kernels) == (True, ())


class Seen:
    """Profiles nothing, and notes that it was asked to."""

    calls: ClassVar[list[GraphInstance]] = []

    def __init__(self) -> None:
        self.recording = nullcontext()

    @staticmethod
    def is_wanted() -> bool:
        return True

    def learn(self, graph: GraphInstance) -> LibraryKernels:
        self.calls.append(graph)
        return KERNELS


def test_no_call_is_profiled_before_somebody_asks_for_recordings(fresh_torch: Path) -> None:
    artifact, guard = Artifact(WHOLE), Guard(strict=True)
    registry, graph = ready(artifact)
    hooks = ArtifactHooks(guard, Compiles(), registry, Seen, lambda _: None)
    for hooks.learns, expected in ((False, []), (True, [graph])):
        Seen.calls.clear()
        list(hooks._artifact_call({"self": artifact}))  # type: ignore[arg-type]
        assert Seen.calls == expected


def test_what_a_later_call_does_not_tell_stays_as_an_earlier_one_reported_it(
    fresh_torch: Path,
) -> None:
    registry, graph = ready(Artifact(WHOLE))
    for kernels in (((1, ("tried out",)), (4, ("cublas",))), KERNELS, ()):
        registry.learn(graph.index, kernels)
    assert registry.graphs[0].library_kernels == (*KERNELS, (4, ("cublas",)))


def test_calls_teach_until_one_records_the_graph(fresh_torch: Path) -> None:
    artifact = Artifact(WHOLE)
    registry, graph = ready(artifact)
    assert [registry.take_unprofiled(artifact) for _ in range(5)] == [graph] * 4 + [None]
    registry, graph = ready(artifact)
    assert registry.take_unprofiled(artifact) == graph
    registry.keep_copies(artifact, ((),))
    assert registry.take_unprofiled(artifact) is None


def test_equal_work_on_other_lines_is_equal_and_other_shapes_are_not() -> None:
    (node,) = WHOLE.nodes
    moved = changed(node, stack=(dataclasses.replace(node.lineage.stack[0], line=9),))
    other = dataclasses.replace(node, target="aten.add")
    records = [dataclasses.replace(WHOLE, nodes=(n,)) for n in (node, moved, other)]
    digests = [work_digest("fkey", each) for each in records]
    assert (digests[0] == digests[1], digests[0] == digests[2]) == (True, False)
    assert digests[0] != work_digest("fother", WHOLE)  # of other arguments: padding, groups
