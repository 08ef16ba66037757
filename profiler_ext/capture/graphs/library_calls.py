"""The graphs whose library calls are still to be profiled: a CUDA graph's replay shows no calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from profiler_ext.records.analysis import Analysis
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import GraphInstance, LibraryKernels
from profiler_ext.records.vocabulary import SiteKind
from profiler_ext.store import Store, work_digest
from profiler_ext.torch_compat import accelerator, inductor, process


def process_store() -> Store:
    """Return the store of this process; Inductor's cache folder may change."""
    return _store_in(inductor.cache_dir())


@functools.cache
def _store_in(cache_dir: str) -> Store:
    return Store(Path(cache_dir) / "profiler_ext")


_UNMATCHED = (GapReason.ALIGNMENT_MISMATCH, GapReason.AMBIGUOUS_EXTERN_RUN)
_MAX_PROFILED_CALLS = 4
"""The most calls of a graph to profile, if it is never recorded."""


class UnprofiledGraphs:
    """The graphs to be replayed of which the recording call was not profiled yet.

    Earlier calls warm up: libraries may initialize or autotune in them.
    """

    def __init__(self) -> None:
        self._calls_left: dict[int, int] = {}

    @property
    def has_any(self) -> bool:
        """Whether there is one."""
        return bool(self._calls_left)

    @property
    def has_calls_left(self) -> bool:
        """Whether a call of one is still to be profiled; other threads may change that."""
        return any(tuple(self._calls_left.values()))

    def add(self, graph: int) -> None:
        """Add a graph to profile."""
        self._calls_left[graph] = _MAX_PROFILED_CALLS

    def end(self, graph: int) -> None:
        """Stop profiling a graph: it is recorded, or gone."""
        self._calls_left.pop(graph, None)

    def is_profiled(self, graph: int) -> bool:
        """Tell whether the profiled kernels of a graph are those of its replays."""
        return not self._calls_left.get(graph)

    def take_call(self, graph: int, read: Callable[[], GraphInstance]) -> GraphInstance | None:
        """Take one of the calls in which a graph is profiled."""
        if self.is_profiled(graph):
            return None
        instance = read()
        if not instance.record.calls_libraries or has_stored_kernels(instance):
            self.end(graph)
            return None
        self._calls_left[graph] -= 1
        return instance


def has_stored_kernels(graph: GraphInstance) -> bool:
    """Tell whether an earlier run profiled each library call of a graph on this device."""
    calls = {at: s for at, s in enumerate(graph.call_sites) if s.kind is SiteKind.EXTERN}
    seen = {at for at, _ in graph.stored_kernels}
    # With autotuning, or with symbolic sizes, each process may launch other kernels.
    if graph.key is None or _has_symbolic_sizes(graph) or accelerator.autotunes_matmul():
        return False
    is_autotuned = any("conv" in site.kernel for site in calls.values())
    return calls.keys() <= seen and not (is_autotuned and accelerator.autotunes_convolutions())


def store_library_kernels(graph: GraphInstance, kernels: LibraryKernels) -> None:
    """Store the kernels of a graph's library calls for other processes.

    Raises:
        OutputError: The folder cannot be written.
        StoreError: The limit in the environment is no number.
    """
    digest, device = work_digest(graph.key, graph.record), process.device_name()
    process_store().put_kernels(digest, device, accelerator.choice_digest(), kernels)


def graphs_with_unmatched_launches(analysis: Analysis) -> set[int]:
    """Return the graphs with launches that match no call site, or several."""
    launches = analysis.launches
    gaps = [at for at, gap in enumerate(launches.gap.strings) if gap in _UNMATCHED]
    graphs = [launches.graph[launches.gap.codes == at].compressed() for at in gaps]
    return {int(graph) for own in graphs for graph in own}


def _has_symbolic_sizes(graph: GraphInstance) -> bool:
    specs = (spec for node in graph.record.nodes for spec in node.outputs)
    return any(type(size) is str for spec in specs for size in spec.size)
