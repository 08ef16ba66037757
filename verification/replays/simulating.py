"""CUDA graphs on a machine without a GPU: real captures, in which each op counts as a launch.

torch's CUDA graphs are replaced by ones that run what is captured on the CPU and replay nothing, so
programs and torch's own ``make_graphed_callables`` run as they are. Afterwards each op that would
have launched gets a launch call in the trace, and so each replay the nodes of its capture. What
the captures recorded is real: ops, autograd's numbers, threads, lines, modules.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from profiler_ext.kineto.names import CudaGraphMark, marked_cuda_graph
from profiler_ext.kineto.recording import read_recording, write_recording
from profiler_ext.profiling import captured_graphs
from profiler_ext.records.recording import (
    CapturedGraph,
    GraphNode,
    Recording,
    capture_recording,
    captured_graph,
)
from profiler_ext.torch_compat.captured_nodes import CapturedNodes

__all__ = ["simulated", "with_launches"]

_NOTHING = CapturedNodes((), ())
_KERNEL_US = 1.0
_LAUNCH_NOTHING = frozenset(
    f"aten::{name}"
    for name in (
        *("as_strided", "chunk", "detach", "detach_", "empty", "empty_like", "empty_strided"),
        *("expand", "item", "narrow", "permute", "reshape", "resize_", "resolve_conj", "to"),
        *("resolve_neg", "result_type", "select", "set_", "slice", "split", "squeeze", "t"),
        *("transpose", "unbind", "unsqueeze", "view", "_local_scalar_dense", "_unsafe_view"),
    )
)
_PRODUCTS = frozenset({"aten::addmm", "aten::mm", "aten::bmm"})
"""A GPU runs them without what the CPU does within."""
Json = dict[str, Any]


class _Graph:
    """What is called of ``torch.cuda.CUDAGraph``."""

    def __new__(cls, *_: Any, **__: Any) -> _Graph:
        return super().__new__(cls)

    def capture_begin(self, *_: Any, **__: Any) -> None:
        """Begin a capture: what follows runs."""

    def capture_end(self) -> None:
        """End it."""

    def replay(self) -> None:
        """Run nothing."""

    def reset(self) -> None:
        """Forget nothing."""

    def pool(self) -> tuple[int, int]:
        return (0, 0)


class _Stream:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def wait_stream(self, _: Any) -> None: ...

    def synchronize(self) -> None: ...


@contextmanager
def simulated() -> Iterator[None]:
    """Put graphs of this module in the place of torch's."""
    replaced = {
        "torch.cuda.graphs.CUDAGraph": _Graph,
        "torch.cuda.CUDAGraph": _Graph,
        "torch.cuda.Stream": _Stream,
        "torch.cuda.stream": lambda _: nullcontext(),
        "torch.cuda.current_stream": lambda *_: _Stream(),
        "torch.cuda.synchronize": lambda *_: None,
        "torch.cuda.graphs.graph_pool_handle": lambda: (0, 0),
        "torch.cuda.graph_pool_handle": lambda: (0, 0),
        "torch.cuda.is_current_stream_capturing": lambda: False,
        f"{captured_graphs.__name__}.nodes_being_captured": lambda: _NOTHING,
    }
    with ExitStack() as stack:
        for name, made in replaced.items():
            stack.enter_context(patch(name, made))
        stack.enter_context(patch.object(torch.cuda.graph, "default_capture_stream", _Stream()))
        yield


def with_launches(recording: Recording) -> Recording:
    """Return a recording in which ops launch kernels, and replays those of their captures."""
    graphs: list[CapturedGraph] = []
    captures = list(recording.captures)
    for at, capture in enumerate(captures):
        content = json.loads(capture.content)
        for number, nodes in _with_calls(content).items():
            edges = [*pairwise(range(len(nodes)))]
            graphs.append(captured_graph(number, at, nodes, edges))
        captures[at] = capture_recording(json.dumps(content).encode())
    complete = replace(recording, cuda_graphs=tuple(graphs), captures=tuple(captures))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.pt.trace.json"
        write_recording(path, complete)
        content = json.loads(path.read_text())
        _launch(content["traceEvents"], {each.number: each for each in graphs})
        path.write_text(json.dumps(content))
        return read_recording(path)


def _launching(events: Sequence[Json]) -> list[Json]:
    """Return the ops that would launch: the innermost of those that compute."""
    ops = [each for each in events if each.get("cat") == "cpu_op" and each["ph"] == "X"]
    ops = [e for e in ops if e["name"].startswith("aten::") and e["name"] not in _LAUNCH_NOTHING]
    ops.sort(key=lambda each: (each["tid"], each["ts"], -each["dur"]))
    leaves: list[Json] = []
    for op in ops:
        if leaves and _holds(leaves[-1], op):
            if leaves[-1]["name"] in _PRODUCTS:
                continue
            leaves.pop()
        leaves.append(op)
    return sorted(leaves, key=lambda each: float(each["ts"]))


def _holds(outer: Json, inner: Json) -> bool:
    is_before_end: bool = inner["ts"] < outer["ts"] + outer["dur"]
    return outer["tid"] == inner["tid"] and is_before_end


def _call(around: Json, name: str, correlation: int) -> Json:
    args = {"correlation": correlation, "External id": around["args"].get("External id", 0)}
    middle = around["ts"] + around["dur"] / 2
    place = {"ts": middle, "dur": 0.001, "pid": around["pid"], "tid": around["tid"]}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, **place, "args": args}


def _with_calls(content: Json) -> dict[int, list[GraphNode]]:
    """Add the launch calls of each capture, and return its nodes."""
    events = content["traceEvents"]
    spans: dict[int, list[float]] = {}
    for each in events:
        for what in (CudaGraphMark.BEGINS, CudaGraphMark.ENDS):
            number = marked_cuda_graph(each["name"], what)
            if number is not None:
                spans.setdefault(number, []).append(each["ts"])
    nodes: dict[int, list[GraphNode]] = {number: [] for number in spans}
    calls = []
    for correlation, op in enumerate(_launching(events), 1):
        for number, (begin, end) in spans.items():
            if begin <= op["ts"] <= end:
                calls.append(_call(op, "cudaLaunchKernel", correlation))
                nodes[number].append(GraphNode(op["name"], "kernel"))
    events += calls
    return nodes


def _launch(events: list[Json], graphs: dict[int, CapturedGraph]) -> None:
    """Add the calls of ops and of replays, and what each runs, one after the other."""
    captured = _captured_spans(events)
    launched: list[tuple[Json, str, list[str]]] = [
        (op, "cudaLaunchKernel", [op["name"]])
        for op in _launching(events)
        if not any(begin <= op["ts"] <= end for begin, end in captured)
    ]
    for each in list(events):
        graph = graphs.get(marked_cuda_graph(each["name"], CudaGraphMark.REPLAYS) or 0)
        if graph is not None and marked_cuda_graph(each["name"], CudaGraphMark.REPLAYS) is not None:
            ran = [graph.kinds[kind].name for kind in graph.nodes.tolist()]
            launched.append((each, "cudaGraphLaunch", ran))
    launched.sort(key=lambda each: float(each[0]["ts"]))
    free = 0.0
    for correlation, (around, name, ran) in enumerate(launched, 1):
        call = _call(around, name, correlation)
        events.append(call)
        for kernel in ran:
            free = max(free, call["ts"]) + _KERNEL_US
            args = {**call["args"], "device": 0, "stream": 7}
            place = {"ts": free, "dur": _KERNEL_US, "pid": 0, "tid": 7}
            events.append({"ph": "X", "cat": "kernel", "name": kernel, **place, "args": args})


def _captured_spans(events: Sequence[Json]) -> list[tuple[float, float]]:
    ends = [
        sorted(e["ts"] for e in events if marked_cuda_graph(e["name"], what) is not None)
        for what in (CudaGraphMark.BEGINS, CudaGraphMark.ENDS)
    ]
    return [*zip(*ends, strict=True)]
