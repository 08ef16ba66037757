"""Small traces of every kind that others write, made here and not recorded.

What they look like was seen in public traces: of torch 1.8 and 1.9, of MTIA, an XPU and ROCm, and
of tools that cut a trace.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
_CPU, _AUTOGRAD = (1, 1), (1, 2)


def _x(cat: str, name: str, thread: tuple[Any, Any], ts: float, dur: float, **args: Any) -> Json:
    """Return a complete event; a double underscore in a key stands for a blank."""
    spelled = {key.replace("__", " "): value for key, value in args.items()}
    pid, tid = thread
    event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    return {**event, "args": spelled}


def _trace(device: str, *events: Json, **header: Any) -> Json:
    devices = [{"id": 0, "name": device}]
    return {"schemaVersion": 1, "deviceProperties": devices, "traceEvents": [*events], **header}


def _step(cat: str = "user_annotation") -> Json:
    return _x(cat, "ProfilerStep#1", _CPU, 0, 1000, External__id=1)


def external_id_is_correlation() -> Json:
    """Return a trace whose id 7 is a correlation, and by chance that of a later op."""
    both: Json = {"External__id": 7, "correlation": 7}
    return _trace(
        "NVIDIA A100",
        _step(),
        _x("cpu_op", "aten::mm", _CPU, 20, 40, External__id=2, Sequence__number=5),
        _x("cuda_runtime", "cudaLaunchKernel", _CPU, 30, 10, **both),
        _x("kernel", "sgemm", (0, 7), 50, 40, device=0, stream=7, **both),
        _x("cpu_op", "aten::relu", _CPU, 800, 40, External__id=7, Sequence__number=6),
    )


def id_of_an_op_on_another_thread() -> Json:
    """Return a trace of which one call stands in no op on its thread, and an id names the op."""
    first: Json = {"External__id": 2, "correlation": 12}
    second: Json = {"External__id": 3, "correlation": 13}
    return _trace(
        "NVIDIA A100",
        _step(),
        _x("cpu_op", "aten::mm", _CPU, 20, 40, External__id=2),
        _x("cuda_runtime", "cudaLaunchKernel", _CPU, 30, 10, **first),
        _x("cpu_op", "aten::relu", _CPU, 100, 40, External__id=3),
        _x("cuda_runtime", "cudaLaunchKernel", (1, 9), 110, 10, **second),
        _x("kernel", "sgemm", (0, 7), 50, 40, device=0, stream=7, **first),
        _x("kernel", "relu", (0, 7), 150, 40, device=0, stream=7, **second),
    )


def torch_1_9() -> Json:
    """Return a forward, its backward and an optimizer as torch 1.9 wrote them."""
    forward: Json = {"Sequence__number": 5, "Fwd__thread__id": 0}
    backward: Json = {"Sequence__number": 5, "Fwd__thread__id": 1}
    optimizer = "Optimizer.step#SGD.step"
    return _trace(
        "Tesla V100",
        _step("Operator"),
        _x("Operator", "aten::mm", _CPU, 20, 40, External__id=2, **forward),
        _x("Operator", "MmBackward", _AUTOGRAD, 100, 80, External__id=3, **backward),
        _x("Operator", "aten::mm", _AUTOGRAD, 110, 60, External__id=4),
        _x("Operator", optimizer, _CPU, 300, 100, External__id=5),
        _x("Operator", "aten::add_", _CPU, 310, 20, External__id=6),
        *_launched("Kernel", "sgemm", _CPU, 30, 11, 2),
        *_launched("Kernel", "sgemm_nt", _AUTOGRAD, 120, 12, 4),
        *_launched("Memset", "Memset (Device)", _AUTOGRAD, 140, 13, 4),
        *_launched("Memcpy", "Memcpy HtoD (Pageable -> Device)", _CPU, 200, 14, 1),
        *_launched("Kernel", "add", _CPU, 315, 15, 6),
    )


def _launched(
    cat: str, name: str, thread: tuple[int, int], ts: int, correlation: int, op: int
) -> tuple[Json, Json]:
    args: Json = {"correlation": correlation, "external__id": op}
    call = _x("Runtime", "cudaLaunchKernel", thread, ts, 5, **args)
    return call, _x(cat, name, (0, "stream 7"), ts + 10, 30.5, device=0, stream=7, **args)


def mtia() -> Json:
    """Return work of an MTIA device, whose number stands nowhere but on its track."""
    return _trace(
        "ARTEMIS",
        _step(),
        _x("cpu_op", "aten::mul", _CPU, 20, 900, External__id=2),
        _x("mtia_runtime", "runFunction - job", _CPU, 25, 10, correlation=11, device=17),
        _x("mtia_runtime", "enqueueCommand waitOnEvent", _CPU, 40, 5, correlation=12, device=17),
        _x("mtia_ccp_events", "event_wait", (17, 3910), 45, 100, stream=112, correlation=12),
        _x("mtia_ccp_events", "pe_exe", (17, 3910), 150, 40, stream=112, correlation=11),
        _x("mtia_ccp_events", "dma_request", (17, 801), 170, 60, direction="HOST_TO_DEVICE"),
        deviceProperties=[{"id": 17, "name": "ARTEMIS"}],
    )


def xpu() -> Json:
    """Return a launch of an XPU, whose driver's call is a part of the runtime's."""
    first: Json = {"External__id": 2, "correlation": 11}
    second: Json = {"External__id": 3, "correlation": 12}
    queue: Json = {"device": 0, "sycl__queue": 64, "l0__queue": "0x1"}
    return _trace(
        "Intel(R) Data Center GPU Max 1550",
        _step(),
        _x("cpu_op", "aten::mul", _CPU, 20, 30, External__id=2),
        _x("xpu_driver", "zeCommandListAppendLaunchKernel", _CPU, 25, 10, **first),
        _x("cpu_op", "aten::add", _CPU, 60, 30, External__id=3),
        _x("xpu_runtime", "urEnqueueKernelLaunch", _CPU, 62, 20, **second),
        _x("xpu_driver", "zeCommandListAppendLaunchKernel", _CPU, 65, 10, **second),
        _x("kernel", "mul", (0, 64), 50, 40, **first, **queue),
        _x("kernel", "add", (0, 64), 95, 40, **second, **queue),
        _x("gpu_memcpy", "Memcpy M2D (Memory -> Device)", (0, 64), 200, 40, **queue),
    )


def rocm() -> Json:
    """Return a copy of ROCm on a device without a name, in a trace that a tool has cut."""
    args: Json = {"External__id": 2, "correlation": 11}
    trace = _trace(
        "",
        _step(),
        _x("cpu_op", "aten::copy_", _CPU, 20, 300, External__id=2),
        _x("cuda_runtime", "hipMemcpyWithStream", _CPU, 25, 290, **args),
        _x(
            "gpu_memcpy",
            "Memcpy HtoD (Host -> Device)",
            (2, 0),
            50,
            200,
            device=2,
            stream=0,
            **args,
        ),
        deviceProperties=[{"id": id, "name": ""} for id in range(8)],
    )
    del trace["schemaVersion"]
    return trace


def own_cuda_graph() -> Json:
    """Return a replay of a graph that the program recorded, and a collective beside it."""
    events = [
        _x("kernel", name, (0, stream), ts, dur, device=0, stream=stream, correlation=11)
        for name, stream, ts, dur in (
            ("sgemm", 7, 50, 100),
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", 20, 100, 100),
            ("triton_poi_fused_gelu_0", 7, 180, 10),
        )
    ]
    call = _x("cuda_runtime", "cudaGraphLaunch", _CPU, 25, 10, correlation=11)
    return _trace("NVIDIA H100", _step(), call, *events)


def profiler_ranges() -> Json:
    """Return a trace that has counters of kernels, laid out over the recording, and no kernel."""
    return _trace(
        "NVIDIA A100",
        _step(),
        _x("cpu_op", "aten::mm", _CPU, 20, 40, External__id=2),
        _x("cuda_runtime", "cudaLaunchKernel", _CPU, 30, 10, External__id=7, correlation=7),
        _x("cuda_profiler_range", "sgemm", (0, 0), 0, 1000),
    )


def gloo_on_a_machine_with_gpus() -> Json:
    """Return a job on the CPU of a machine whose GPUs the trace lists."""
    return _trace(
        "NVIDIA A100",
        _step(),
        _x("cpu_op", "aten::mm", _CPU, 20, 40, External__id=2),
        _x("user_annotation", "gloo:all_reduce", _AUTOGRAD, 70, 40, External__id=3),
    )


MADE = {
    each.__name__: each
    for each in (
        external_id_is_correlation,
        id_of_an_op_on_another_thread,
        torch_1_9,
        mtia,
        xpu,
        rocm,
        own_cuda_graph,
        profiler_ranges,
        gloo_on_a_machine_with_gpus,
    )
}
