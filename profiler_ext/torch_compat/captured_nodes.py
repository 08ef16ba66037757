"""The nodes of a CUDA graph that is being captured, by NVIDIA's driver: what each runs, its edges.

torch destroys the graph once it is instantiated, so the nodes are read before the capture ends.

Source: ``cuda.h``: ``cuStreamGetCaptureInfo_v2``, ``cuGraphGetNodes``, ``cuGraphGetEdges_v2``,
``CUDA_KERNEL_NODE_PARAMS_v2``; ``libkineto/src/Demangle.cpp``.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from profiler_ext.kineto.names import Category
from profiler_ext.records.recording import GraphNode

_CAPTURING = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
_LONGEST_MANGLED = 1024  # Kineto leaves longer names mangled
_KERNEL = 0
_RUN_NOTHING = (5, 6, 7, 10, 11)  # empty, event waited for and recorded, memory allocated and freed
_CATEGORIES = {0: Category.KERNEL, 1: Category.GPU_MEMCPY, 2: Category.GPU_MEMSET}
_Handle = ctypes.c_void_p


class _KernelParameters(ctypes.Structure):
    _fields_ = (
        ("function", _Handle),
        ("shape", ctypes.c_uint * 6),  # grid and block
        ("shared_bytes", ctypes.c_uint),
        ("kernel_parameters", _Handle),
        ("extra", _Handle),
        ("kernel", _Handle),
        ("context", _Handle),
    )


class CapturedNodes(NamedTuple):
    """The nodes in the order of their launches, and the edges between them, by position."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[int, int], ...]


def nodes_being_captured() -> CapturedNodes | None:
    """Return the nodes of the graph that the current stream is capturing.

    ``None`` where they cannot be read, and of a graph with a node that runs a graph of its own, or
    a function of the host.
    """
    driver = _driver()
    graph = None if driver is None else _graph_being_captured(driver)
    if driver is None or graph is None:
        return None
    handles = _handles(driver, graph)
    nodes = [_node(driver, each) for each in handles]
    known = [node for node in nodes if node is not None]
    if len(known) < len(nodes):
        return None
    return CapturedNodes(*_without_idle_nodes(known, _edges(driver, graph, handles)))


def _without_idle_nodes(
    nodes: Sequence[GraphNode], edges: Sequence[tuple[int, int]]
) -> tuple[tuple[GraphNode, ...], tuple[tuple[int, int], ...]]:
    """Leave out the nodes that run nothing; what follows one follows what it follows."""
    before: dict[int, list[int]] = {}
    for source, target in edges:
        before.setdefault(target, []).append(source)
    working = [at for at, node in enumerate(nodes) if node.category]
    number = {at: new for new, at in enumerate(working)}

    def sources(at: int) -> set[int]:
        nearest, open_nodes, seen = set[int](), [*before.get(at, ())], set[int]()
        while open_nodes:
            source = open_nodes.pop()
            if source in number:
                nearest.add(number[source])
            elif source not in seen:
                seen.add(source)
                open_nodes += before.get(source, ())
        return nearest

    kept = ((source, number[at]) for at in working for source in sorted(sources(at)))
    return tuple(nodes[at] for at in working), tuple(kept)


@functools.cache
def _driver() -> Any | None:
    """Return NVIDIA's driver, if it is here and not too old."""
    if torch.version.cuda is None:
        return None
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    needed = ("cuStreamGetCaptureInfo_v2", "cuGraphKernelNodeGetParams_v2", "cuFuncGetName")
    return driver if all(hasattr(driver, name) for name in needed) else None


def _graph_being_captured(driver: Any) -> Any | None:
    stream = torch.cuda.current_stream().cuda_stream
    status, number, graph = ctypes.c_int(), ctypes.c_uint64(), _Handle()
    failed = driver.cuStreamGetCaptureInfo_v2(
        _Handle(stream), *map(ctypes.byref, (status, number, graph)), None, None
    )
    return None if failed or status.value != _CAPTURING else graph


def _handles(driver: Any, graph: Any) -> list[int]:
    count = ctypes.c_size_t()
    _check(driver.cuGraphGetNodes(graph, None, ctypes.byref(count)))
    handles = (_Handle * count.value)()
    _check(driver.cuGraphGetNodes(graph, handles, ctypes.byref(count)))
    return [each or 0 for each in handles]


def _edges(driver: Any, graph: Any, handles: Sequence[int]) -> list[tuple[int, int]]:
    get = _edge_reader(driver)
    count = ctypes.c_size_t()
    _check(get(graph, None, None, None, ctypes.byref(count)))
    sources, targets = ((_Handle * count.value)() for _ in range(2))
    data = (ctypes.c_uint64 * count.value)()
    _check(get(graph, sources, targets, data, ctypes.byref(count)))
    at = {handle: position for position, handle in enumerate(handles)}
    return [(at[a or 0], at[b or 0]) for a, b in zip(sources, targets, strict=True)]


def _edge_reader(driver: Any) -> Callable[..., int]:
    """Return the driver's function for edges; an older one knows no data of edges."""
    if hasattr(driver, "cuGraphGetEdges_v2"):
        newer: Callable[..., int] = driver.cuGraphGetEdges_v2
        return newer

    def older(graph: Any, sources: Any, targets: Any, _: Any, count: Any) -> int:
        failed: int = driver.cuGraphGetEdges(graph, sources, targets, count)
        return failed

    return older


def _node(driver: Any, handle: int) -> GraphNode | None:
    kind = ctypes.c_int()
    _check(driver.cuGraphNodeGetType(_Handle(handle), ctypes.byref(kind)))
    if kind.value in _RUN_NOTHING:
        return GraphNode("", "")
    category = _CATEGORIES.get(kind.value)
    if category is None:
        return None
    return _kernel(driver, handle) if kind.value == _KERNEL else GraphNode("", category)


def _kernel(driver: Any, handle: int) -> GraphNode:
    parameters, name = _KernelParameters(), ctypes.c_char_p()
    _check(driver.cuGraphKernelNodeGetParams_v2(_Handle(handle), ctypes.byref(parameters)))
    if parameters.function:
        _check(driver.cuFuncGetName(ctypes.byref(name), _Handle(parameters.function)))
    else:
        _check(driver.cuKernelGetName(ctypes.byref(name), _Handle(parameters.kernel)))
    return GraphNode(_demangled(name.value or b""), Category.KERNEL, tuple(parameters.shape))


@functools.cache
def _demangled(name: bytes) -> str:
    """Return a name as Kineto writes it."""
    plain = name.decode("utf-8", "backslashreplace")
    demangle = _demangler()
    if not name.startswith(b"_Z") or len(name) > _LONGEST_MANGLED or demangle is None:
        return plain
    status = ctypes.c_int()
    made = demangle(name, None, None, ctypes.byref(status))
    if not made or status.value:
        return plain
    try:
        return ctypes.string_at(made).decode("utf-8", "backslashreplace")
    finally:
        _freed(made)


@functools.cache
def _demangler() -> Any | None:
    try:
        function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return None
    function.restype = _Handle
    return function


def _freed(address: int) -> None:
    free = ctypes.CDLL(None).free
    free.argtypes = (_Handle,)
    free(address)


def _check(failed: int) -> None:
    if failed:
        raise RuntimeError(f"NVIDIA's driver returned error {failed}")
