"""Long streams of legal events that a slow algorithm hangs on."""

from __future__ import annotations

from collections.abc import Iterator

from verification.hostile.making import Json, event

_MANY = 300_000
MARKER = "## Call CompiledFxGraph fi74cmf3zp55gfevkuxx2eo3opatbin2zkw6ygiag7ghjpbndtda ##"


def ops_at_one_time(count: int = _MANY) -> Iterator[Json]:
    yield event("user_annotation", "ProfilerStep#0", 0, 1e6)
    for n in range(count):
        yield event("cpu_op", "aten::mm", 5, 1, External_id=n)


def ops_without_length() -> Iterator[Json]:
    for n in range(_MANY):
        yield event("cpu_op", "aten::mm", 5, 0, External_id=n)


def kernels_at_one_time() -> Iterator[Json]:
    yield event("user_annotation", "ProfilerStep#0", 0, 1e6)
    for n in range(_MANY):
        yield event("kernel", "k", 5, 1, External_id=n, correlation=n, device=0, stream=7)


def launched_at_one_time() -> Iterator[Json]:
    yield event("user_annotation", "ProfilerStep#0", 0, 1e6)
    for n in range(_MANY // 3):
        yield event("cpu_op", "aten::mm", 5, 1, External_id=n)
        yield event("cuda_runtime", "cudaLaunchKernel", 5, 1, External_id=n, correlation=n)
        yield event("kernel", "k", 5, 1, External_id=n, correlation=n, device=0, stream=7)


def nested(depth: int, name: str = "aten::mm") -> Iterator[Json]:
    for n in range(depth):
        yield event("cpu_op", name, n / 1000, 2 * (depth - n) / 1000, External_id=n)


def nested_with_kernels() -> Iterator[Json]:
    yield from nested(100_000)
    for n in range(20_000):
        yield event("cuda_runtime", "cudaLaunchKernel", 100 + n / 1000, 0.0005, correlation=n)
        yield event("kernel", "k", 500 + n, 1, correlation=n, device=0, stream=7)


def steps(count: int = 50_000) -> Iterator[Json]:
    for n in range(count):
        yield event("user_annotation", f"ProfilerStep#{n}", n * 10, 10)
        yield event("cuda_runtime", "cudaLaunchKernel", n * 10 + 1, 1, correlation=n)
        yield event("kernel", "k", n * 10 + 2, 3, correlation=n, device=0, stream=7)


def steps_at_one_time() -> Iterator[Json]:
    for n in range(50_000):
        yield event("user_annotation", f"ProfilerStep#{n}", 0, 1000)
    for n in range(100):
        yield event("kernel", "k", n * 10 + 2, 3, correlation=n, device=0, stream=7)


def steps_at_one_time_with_kernels() -> Iterator[Json]:
    for n in range(20_000):
        yield event("user_annotation", f"ProfilerStep#{n}", n / 1000, 1e6)
        yield event("kernel", "k", n * 10 + 2, 3, correlation=n, device=0, stream=7)


def steps_of_one_number() -> Iterator[Json]:
    for n in range(50_000):
        yield event("user_annotation", "ProfilerStep#1", n * 10, 10)
        yield event("kernel", "k", n * 10 + 2, 3, correlation=n, device=0, stream=7)


def steps_without_kernels() -> Iterator[Json]:
    for n in range(50_000):
        yield event("user_annotation", f"ProfilerStep#{n}", n * 10, 10)


def stairs() -> Iterator[Json]:
    """Ops of which each ends a little after the one before it, so that none encloses another."""
    for n in range(100_000):
        yield event("cpu_op", "aten::mm", n / 1000, 1000, External_id=n)


def calls() -> Iterator[Json]:
    yield event("user_annotation", "ProfilerStep#0", 0, 1e7)
    for n in range(30_000):
        yield event("cpu_op", MARKER, n * 10, 9)
        yield event("cuda_runtime", "cudaLaunchKernel", n * 10 + 1, 1, correlation=n)
        yield event("kernel", "nvjet", n * 10 + 2, 3, correlation=n, device=0, stream=7)


def calls_nested() -> Iterator[Json]:
    yield from nested(50_000, MARKER)


def backwards_of_one_number() -> Iterator[Json]:
    for n in range(30_000):
        yield event("cpu_op", "CompiledFunction", n * 2, 1, Sequence_number=5)
        yield event(
            "cpu_op",
            "CompiledFunctionBackward",
            n * 2,
            1,
            tid=2,
            Sequence_number=5,
            Fwd_thread_id=1,
        )


def one_call_of_many() -> Iterator[Json]:
    yield event("cpu_op", MARKER, 0, 1e7)
    for n in range(20_000):
        yield event("cuda_runtime", "cudaLaunchKernel", n * 10 + 1, 1, correlation=n)
        yield event(
            "kernel", "triton_poi_fused_tanh_0", n * 10, 3, correlation=n, device=0, stream=7
        )


def one_replay_of_many() -> Iterator[Json]:
    yield event("cpu_op", MARKER, 0, 1e7)
    yield event("cuda_runtime", "cudaGraphLaunch", 1, 1, correlation=1)
    for n in range(50_000):
        yield event("kernel", "nvjet", n * 10, 3, correlation=1, device=0, stream=7)


def streams() -> Iterator[Json]:
    for n in range(30_000):
        yield event("kernel", "k", n, 3, tid=n, correlation=n, device=0, stream=n)


def devices() -> Iterator[Json]:
    yield event("user_annotation", "ProfilerStep#0", 0, 1e7)
    for n in range(20_000):
        yield event("kernel", "k", n, 3, correlation=n, device=n, stream=7)


def devices_and_steps() -> Iterator[Json]:
    for n in range(3_000):
        yield event("user_annotation", f"ProfilerStep#{n}", n * 10, 10)
        yield event("kernel", "k", n * 10, 3, correlation=n, device=n, stream=7)


def threads() -> Iterator[Json]:
    for n in range(50_000):
        yield event("cpu_op", "aten::mm", n, 3, tid=n)


def names() -> Iterator[Json]:
    for n in range(100_000):
        yield event("kernel", f"kernel_{n}", n, 1, correlation=n, device=0, stream=7)


def copies_of_one_correlation() -> Iterator[Json]:
    for n in range(50_000):
        yield event("cuda_runtime", "cudaLaunchKernel", n * 10, 1, correlation=1)
        yield event("kernel", "k", n * 10 + 2, 3, correlation=1, device=0, stream=7)


def overlapping() -> Iterator[Json]:
    for n in range(50_000):
        yield event("kernel", "k", n, 1e6, correlation=n, device=0, stream=7)


def collectives() -> Iterator[Json]:
    yield event("user_annotation", "ProfilerStep#0", 0, 1e7)
    for n in range(30_000):
        args = {"Collective name": "allreduce", "Process Group Name": "0", "Seq": n % 3}
        yield event(
            "kernel",
            "ncclDevKernel_AllReduce",
            n * 10,
            3,
            correlation=n,
            device=0,
            stream=7,
            **args,
        )
