"""Traces of several ranks as torch's own profiler writes them, made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True)
class Ran:
    """A kernel on the stream of collectives, in microseconds, with what its event tells."""

    start: float
    duration: float
    args: dict[str, Any] | None = None
    kernel: str = ALL_REDUCE
    around: str = "nccl:all_reduce"


def in_group(group: str = "0", elements: int = 1024, size: int = 2, **more: Any) -> dict[str, Any]:
    """What Kineto writes of a collective whose group is known; ``Seq`` is more."""
    args = {"Collective name": "allreduce", "Process Group Name": group, "Group size": size}
    return args | {"In msg nelems": elements} | more


def write(
    folder: Path,
    rank: int,
    ran: Sequence[Ran],
    info: dict[str, Any] | None = None,
    name: str = "worker{rank}.0.pt.trace.json",
    **header: Any,
) -> Path:
    """Write the trace of a rank: a step of 1 ms with a kernel of 40 us, and what else it ran.

    Args:
        folder: where to.
        rank: the rank.
        ran: what else it ran.
        info: ``distributedInfo``; by default the rank, of two.
        name: of the file.
        **header: further keys.
    """
    events = [event("user_annotation", "ProfilerStep#1", 1, 0, 1000)]
    events += launched(1, Ran(50, 40, kernel="k", around="aten::mul"))
    for at, each in enumerate(ran, 2):
        events += launched(at, each)
    args = {"backend": "nccl", "rank": rank, "world_size": 2} if info is None else info
    whole = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}], **header}
    whole |= {"distributedInfo": args} if args else {}
    path = folder / name.format(rank=rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole | {"traceEvents": events}))
    return path


def launched(at: int, ran: Ran) -> list[dict[str, Any]]:
    args = {"correlation": at, "External id": at}
    call = event("cuda_runtime", "cudaLaunchKernel", 1, at * 20 + 5, 5, **args)
    place = {"device": 0, "stream": 7, **args, **(ran.args or {})}
    kernel = event("kernel", ran.kernel, 7, ran.start, ran.duration, **place)
    return [event("cpu_op", ran.around, 1, at * 20, 15, **{"External id": at}), call, kernel]


def event(
    category: str, name: str, thread: int, start: float, duration: float, **args: Any
) -> dict[str, Any]:
    where = {"pid": 0 if category == "kernel" else 1, "tid": thread}
    return (
        {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration}
        | where
        | {"args": args}
    )
