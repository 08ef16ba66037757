"""How tests of communication write what ranks ran: steps, kernels and collectives."""

from __future__ import annotations

from profiler_ext.attribution import attribute
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Thread
from profiler_ext.records.recording import Recording, Settings
from tests.attribution.reading import assert_conserves
from tests.handmade import Mark, trace

MAIN, AUTOGRAD, WORKER = Thread(100, 100), Thread(100, 101), Thread(100, 102)


ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"


def step(start_ns: int, end_ns: int) -> Mark:
    return Mark("ProfilerStep#1", "user_annotation", MAIN, start_ns, end_ns - start_ns)


def ran(
    name: str,
    start_ns: int,
    end_ns: int,
    number: int,
    stream: int = 7,
    called_ns: int | None = None,
) -> list[Mark]:
    """Return a kernel on the first device, and the call that launched it: at the very beginning."""
    called = {"correlation": number, "External id": number}
    on_device = called | {"device": 0, "stream": stream}
    return [
        Mark("cudaLaunchKernel", "cuda_runtime", MAIN, called_ns or number, 1, called),
        Mark(name, "kernel", Thread(0, stream), start_ns, end_ns - start_ns, on_device),
    ]


def collective(
    start_ns: int,
    end_ns: int,
    number: int,
    ranks: int | None = 2,
    name: str = "allreduce",
    called_ns: int | None = None,
) -> list[Mark]:
    """Return a collective with the op that tells of it."""
    arguments = {"Process Group Name": "dp", "Seq": number, "Collective name": name}
    size = {} if ranks is None else {"Group size": ranks}
    args = {"External id": number} | arguments | size
    op = Mark("record_param_comms", "cpu_op", MAIN, called_ns or number, 1, args)
    return [op, *ran(ALL_REDUCE, start_ns, end_ns, number, 20, called_ns)]


def analysed(*marks: Mark, rank: int = 0) -> Analysis:
    settings = Settings(rank=rank, world_size=2)
    analysis = attribute(Recording(trace(marks), settings=settings))
    assert_conserves(analysis)
    return analysis


def step_time_breakdown(analysis: Analysis) -> dict[str, int]:
    return {line.scope: line.duration_ns for line in analysis.breakdown}
