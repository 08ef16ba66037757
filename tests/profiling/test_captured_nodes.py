"""The nodes of a graph that is being captured, read from a driver in this file."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from profiler_ext.records.recording import GraphNode
from profiler_ext.torch_compat import captured_nodes

_KERNEL, _COPY, _FILL, _HOST, _WAIT = 0, 1, 2, 3, 6
_NAMES = {1: b"triton_poi_fused_add_0", 2: b"_Z4gemmPfi", 5: b"last"}


class _Driver:
    """A capture of some nodes, whose handles begin at 1, and edges between handles."""

    def __init__(self, kinds: list[int], edges: list[tuple[int, int]], status: int = 1) -> None:
        self._kinds, self._edges, self._status = kinds, edges, status

    def cuStreamGetCaptureInfo_v2(
        self, stream: Any, status: Any, number: Any, graph: Any, *_: Any
    ) -> int:
        status._obj.value, number._obj.value, graph._obj.value = self._status, 3, 77
        return 0

    def cuGraphGetNodes(self, graph: Any, handles: Any, count: Any) -> int:
        count._obj.value = len(self._kinds)
        for at in range(len(handles or ())):
            handles[at] = at + 1
        return 0

    def cuGraphGetEdges(self, graph: Any, sources: Any, targets: Any, count: Any) -> int:
        count._obj.value = len(self._edges)
        for at in range(len(sources or ())):
            sources[at], targets[at] = self._edges[at]
        return 0

    def cuGraphNodeGetType(self, node: Any, kind: Any) -> int:
        kind._obj.value = self._kinds[node.value - 1]
        return 0

    def cuGraphKernelNodeGetParams_v2(self, node: Any, parameters: Any) -> int:
        is_library = node.value == 2
        parameters._obj.function = 0 if is_library else node.value
        parameters._obj.kernel = node.value if is_library else 0
        parameters._obj.shape = (ctypes.c_uint * 6)(node.value, 1, 1, 128, 1, 1)
        return 0

    def cuFuncGetName(self, name: Any, function: Any) -> int:
        name._obj.value = _NAMES[function.value]
        return 0

    cuKernelGetName = cuFuncGetName


def _read(monkeypatch: pytest.MonkeyPatch, driver: _Driver) -> captured_nodes.CapturedNodes | None:
    monkeypatch.setattr(captured_nodes, "_driver", lambda: driver)
    stream = SimpleNamespace(cuda_stream=5)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    return captured_nodes.nodes_being_captured()


def test_nodes_have_names_shapes_and_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only waits is left out: what follows it follows what it waits for."""
    kinds = [_KERNEL, _KERNEL, _WAIT, _FILL, _KERNEL]
    edges = [(1, 2), (1, 3), (2, 3), (3, 4), (4, 5)]
    read = _read(monkeypatch, _Driver(kinds, edges))
    assert read is not None
    gemm = captured_nodes._demangled(_NAMES[2])
    assert gemm in ("gemm(float*, int)", "_Z4gemmPfi")  # without the C++ library it stays mangled
    assert read.nodes == (
        GraphNode("triton_poi_fused_add_0", "kernel", (1, 1, 1, 128, 1, 1)),
        GraphNode(gemm, "kernel", (2, 1, 1, 128, 1, 1)),
        GraphNode("", "gpu_memset"),
        GraphNode("last", "kernel", (5, 1, 1, 128, 1, 1)),
    )
    assert read.edges == ((0, 1), (0, 2), (1, 2), (2, 3))


@pytest.mark.parametrize(
    "driver",
    [_Driver([_KERNEL, _HOST], [(1, 2)]), _Driver([_KERNEL], [], status=2)],
    ids=["a function of the host", "a capture that failed"],
)
def test_what_cannot_be_replayed_by_kernels_alone_is_not_read(
    monkeypatch: pytest.MonkeyPatch, driver: _Driver
) -> None:
    assert _read(monkeypatch, driver) is None
