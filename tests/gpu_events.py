"""The events of a small training step on a GPU, made by hand.

The step runs from 0 to 1,000,000 ns; its nine launches take 234,501 ns, of which 10,000 ns
overlap on one stream.
"""

from __future__ import annotations

from profiler_ext.records.events import Thread
from tests.handmade import Mark

MAIN = Thread(4242, 4242)
AUTOGRAD = Thread(4242, 4300)
COMPUTE = Thread(0, 7)
COPY = Thread(0, 20)
FORWARD_KEY = "fkeyforward"
BACKWARD_KEY = "fkeybackward"


def host(name: str, thread: Thread, start: int, duration: int, **args: int) -> Mark:
    """Return a CPU op; ``External_id`` stands for the argument ``External id``."""
    spelled = {key.replace("_", " "): value for key, value in args.items()}
    return Mark(name, "cpu_op", thread, start, duration, spelled)


def _call(name: str, thread: Thread, start: int, correlation: int) -> Mark:
    args = {"External id": correlation + 100, "correlation": correlation}
    category = "cuda_driver" if name.startswith("cu") and name[2].isupper() else "cuda_runtime"
    return Mark(name, category, thread, start, 4_000, args)


def _device(
    name: str, start: int, duration: int, correlation: int, thread: Thread = COMPUTE
) -> Mark:
    category = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}.get(name.split()[0], "kernel")
    args = {
        "External id": correlation + 100,
        "device": 0,
        "stream": thread.tid,
        "correlation": correlation,
    }
    return Mark(name, category, thread, start, duration, args)


GPU_MARKS = (
    Mark("ProfilerStep#3", "user_annotation", MAIN, 0, 1_000_000, {"External id": 1}),
    host("aten::copy_", MAIN, 10_000, 20_000, External_id=111),
    _call("cudaMemcpyAsync", MAIN, 12_000, 11),
    host("Torch-Compiled Region: 0/0", MAIN, 40_000, 160_000, External_id=2),
    host("CompiledFunction", MAIN, 45_000, 150_000, External_id=3, Sequence_number=510),
    Mark(
        f"## Call CompiledFxGraph {FORWARD_KEY} ##",
        "user_annotation",
        MAIN,
        50_000,
        140_000,
        {"External id": 4},
    ),
    host("aten::addmm", MAIN, 60_000, 20_000, External_id=112),
    _call("cudaLaunchKernelExC", MAIN, 65_000, 12),
    host("triton_poi_fused__to_copy_gelu_0", MAIN, 90_000, 10_000, External_id=113),
    _call("cuLaunchKernel", MAIN, 92_000, 13),
    host(
        "CompiledFunctionBackward",
        AUTOGRAD,
        220_000,
        150_000,
        External_id=5,
        Sequence_number=510,
        Fwd_thread_id=1,
    ),
    Mark(
        f"## Call CompiledFxGraph {BACKWARD_KEY} ##",
        "user_annotation",
        AUTOGRAD,
        225_000,
        140_000,
        {"External id": 6},
    ),
    _call("cuLaunchKernel", AUTOGRAD, 240_000, 14),
    host("aten::mm", AUTOGRAD, 250_000, 20_000, External_id=115),
    _call("cudaLaunchKernelExC", AUTOGRAD, 255_000, 15),
    _call("cudaLaunchKernelExC", AUTOGRAD, 280_000, 16),
    host("aten::add_", AUTOGRAD, 380_000, 20_000, External_id=117, Sequence_number=511),
    _call("cudaLaunchKernel", AUTOGRAD, 385_000, 17),
    Mark(
        "Optimizer.step#AdamW.step", "user_annotation", MAIN, 440_000, 300_000, {"External id": 7}
    ),
    host("aten::zero_", MAIN, 450_000, 20_000, External_id=118),
    _call("cudaMemsetAsync", MAIN, 455_000, 18),
    host("aten::_fused_adamw_", MAIN, 500_000, 100_000, External_id=119),
    _call("cudaLaunchKernel", MAIN, 590_000, 19),
    _device("Memcpy HtoD (Pinned -> Device)", 50_000, 10_000, 11, COPY),
    _device("nvjet_tst_64x8_64x16_1x4_h_bz_TNT", 100_000, 50_000, 12),
    _device("triton_poi_fused__to_copy_gelu_0", 160_000, 20_001, 13),
    _device("triton_red_fused_gelu_backward_sum_0", 310_000, 30_000, 14),
    _device("nvjet_tst_128x64_64x8_2x1_v_bz_NTT", 330_000, 40_000, 15),
    _device("void cutlass::Kernel2<cutlass_80_wmma_tensorop>(Params)", 400_000, 20_000, 16),
    _device("void at::native::vectorized_elementwise_kernel<4, ...>", 430_000, 4_000, 17),
    _device("Memset (Device)", 500_000, 500, 18),
    _device(
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...>",
        700_000,
        60_000,
        19,
    ),
)
