"""Owns the cases of size: legal traces that a slow algorithm hangs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from profiler_ext.records import ClockMark, Function, Position, PythonLines, thread_positions
from tests.hostile.making import (
    EVENTS,
    OURS,
    Case,
    Json,
    changed,
    dumped,
    event,
    session,
    with_events,
)

_MANY = 300_000
_LAUNCHES = 50_000
_MARKER = "## Call CompiledFxGraph fi74cmf3zp55gfevkuxx2eo3opatbin2zkw6ygiag7ghjpbndtda ##"


def _ops_at_one_time() -> Iterator[Json]:
    yield event("user_annotation", "ProfilerStep#0", 0, 1e6)
    for n in range(_MANY):
        yield event("cpu_op", "aten::mm", 5, 1, External_id=n)


def _ops_without_length() -> Iterator[Json]:
    for n in range(_MANY):
        yield event("cpu_op", "aten::mm", 5, 0, External_id=n)


def _kernels_at_one_time() -> Iterator[Json]:
    yield event("user_annotation", "ProfilerStep#0", 0, 1e6)
    for n in range(_MANY):
        yield event("kernel", "k", 5, 1, External_id=n, correlation=n, device=0, stream=7)


def _launched_at_one_time() -> Iterator[Json]:
    yield event("user_annotation", "ProfilerStep#0", 0, 1e6)
    for n in range(_MANY // 3):
        yield event("cpu_op", "aten::mm", 5, 1, External_id=n)
        yield event("cuda_runtime", "cudaLaunchKernel", 5, 1, External_id=n, correlation=n)
        yield event("kernel", "k", 5, 1, External_id=n, correlation=n, device=0, stream=7)


def _lines(whole: Json) -> None:
    """Eager launches, each at a line of its own: as many positions of one thread."""
    whole[EVENTS] = [event("cpu_op", "profiler_ext: clock 0", 0, 1)]
    times = range(10_000, 10_000 + 10_000 * _LAUNCHES, 10_000)
    for n in range(_LAUNCHES):
        at = 10 * n + 11
        whole[EVENTS] += [
            event("cpu_op", "aten::mm", at, 8, External_id=n),
            event("cuda_runtime", "cudaLaunchKernel", at + 2, 1, External_id=n, correlation=n),
            event("kernel", "gemm", at + 4, 1, 7, External_id=n, correlation=n, device=0, stream=7),
        ]
    python = PythonLines(
        functions=(Function("/src/train.py", "step"),),
        modules=(),
        positions=tuple(Position(None, 0, n % 1000 + 1) for n in range(_LAUNCHES)),
        threads=(thread_positions(1, [*times], [*range(_LAUNCHES)]),),
        clock=(ClockMark(0, -1, 1_001),),
        until_ns=times[-1] + 10_000,
    )
    whole[OURS]["python"] = msgspec.to_builtins(python)


def _nested(depth: int, name: str = "aten::mm") -> Iterator[Json]:
    for n in range(depth):
        yield event("cpu_op", name, n / 1000, 2 * (depth - n) / 1000, External_id=n)


def _nested_with_kernels() -> Iterator[Json]:
    yield from _nested(100_000)
    for n in range(20_000):
        yield event("cuda_runtime", "cudaLaunchKernel", 100 + n / 1000, 0.0005, correlation=n)
        yield event("kernel", "k", 500 + n, 1, correlation=n, device=0, stream=7)


def _steps() -> Iterator[Json]:
    for n in range(50_000):
        yield event("user_annotation", f"ProfilerStep#{n}", n * 10, 10)
        yield event("cuda_runtime", "cudaLaunchKernel", n * 10 + 1, 1, correlation=n)
        yield event("kernel", "k", n * 10 + 2, 3, correlation=n, device=0, stream=7)


def _steps_at_one_time() -> Iterator[Json]:
    for n in range(50_000):
        yield event("user_annotation", f"ProfilerStep#{n}", 0, 1000)
    for n in range(100):
        yield event("kernel", "k", n * 10 + 2, 3, correlation=n, device=0, stream=7)


def _steps_at_one_time_with_kernels() -> Iterator[Json]:
    for n in range(20_000):
        yield event("user_annotation", f"ProfilerStep#{n}", n / 1000, 1e6)
        yield event("kernel", "k", n * 10 + 2, 3, correlation=n, device=0, stream=7)


def _steps_of_one_number() -> Iterator[Json]:
    for n in range(50_000):
        yield event("user_annotation", "ProfilerStep#1", n * 10, 10)
        yield event("kernel", "k", n * 10 + 2, 3, correlation=n, device=0, stream=7)


def _steps_without_kernels() -> Iterator[Json]:
    for n in range(50_000):
        yield event("user_annotation", f"ProfilerStep#{n}", n * 10, 10)


def _stairs() -> Iterator[Json]:
    """Ops of which each ends a little after the one before it, so that none encloses another."""
    for n in range(100_000):
        yield event("cpu_op", "aten::mm", n / 1000, 1000, External_id=n)


def _calls() -> Iterator[Json]:
    yield event("user_annotation", "ProfilerStep#0", 0, 1e7)
    for n in range(30_000):
        yield event("cpu_op", _MARKER, n * 10, 9)
        yield event("cuda_runtime", "cudaLaunchKernel", n * 10 + 1, 1, correlation=n)
        yield event("kernel", "nvjet", n * 10 + 2, 3, correlation=n, device=0, stream=7)


def _calls_nested() -> Iterator[Json]:
    yield from _nested(50_000, _MARKER)


def _backwards_of_one_number() -> Iterator[Json]:
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


def _one_call_of_many() -> Iterator[Json]:
    yield event("cpu_op", _MARKER, 0, 1e7)
    for n in range(20_000):
        yield event("cuda_runtime", "cudaLaunchKernel", n * 10 + 1, 1, correlation=n)
        yield event(
            "kernel", "triton_poi_fused_tanh_0", n * 10, 3, correlation=n, device=0, stream=7
        )


def _one_replay_of_many() -> Iterator[Json]:
    yield event("cpu_op", _MARKER, 0, 1e7)
    yield event("cuda_runtime", "cudaGraphLaunch", 1, 1, correlation=1)
    for n in range(50_000):
        yield event("kernel", "nvjet", n * 10, 3, correlation=1, device=0, stream=7)


def _streams() -> Iterator[Json]:
    for n in range(30_000):
        yield event("kernel", "k", n, 3, tid=n, correlation=n, device=0, stream=n)


def _devices() -> Iterator[Json]:
    yield event("user_annotation", "ProfilerStep#0", 0, 1e7)
    for n in range(20_000):
        yield event("kernel", "k", n, 3, correlation=n, device=n, stream=7)


def _devices_and_steps() -> Iterator[Json]:
    for n in range(3_000):
        yield event("user_annotation", f"ProfilerStep#{n}", n * 10, 10)
        yield event("kernel", "k", n * 10, 3, correlation=n, device=n, stream=7)


def _threads() -> Iterator[Json]:
    for n in range(50_000):
        yield event("cpu_op", "aten::mm", n, 3, tid=n)


def _names() -> Iterator[Json]:
    for n in range(100_000):
        yield event("kernel", f"kernel_{n}", n, 1, correlation=n, device=0, stream=7)


def _copies_of_one_correlation() -> Iterator[Json]:
    for n in range(50_000):
        yield event("cuda_runtime", "cudaLaunchKernel", n * 10, 1, correlation=1)
        yield event("kernel", "k", n * 10 + 2, 3, correlation=1, device=0, stream=7)


def _overlapping() -> Iterator[Json]:
    for n in range(50_000):
        yield event("kernel", "k", n, 1e6, correlation=n, device=0, stream=7)


def _collectives() -> Iterator[Json]:
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


def _sites(whole: Json) -> None:
    record = whole[OURS]["graphs"][0]["provenance"]
    site = record["call_sites"][0]
    record["call_sites"] = [
        site | {"ordinal": n, "path": str(n), "kernel": f"triton_{n}", "kind": "triton", "op": None}
        for n in range(20_000)
    ]


def _sites_and_events(whole: Json) -> None:
    _sites(whole)
    whole[EVENTS] = list(_one_call_of_many())


def _launches_of_sites(kept: Callable[[int], int]) -> Callable[[Json], None]:
    """Return what makes 20,000 call sites, and the launches of those that are kept, in order."""

    def change(whole: Json) -> None:
        _sites(whole)
        whole[EVENTS] = [event("cpu_op", _MARKER, 0, 1e7)]
        for n in range(19_900):
            launched = {"correlation": n, "device": 0, "stream": 7}
            whole[EVENTS] += [
                event("cuda_runtime", "cudaLaunchKernel", n * 10 + 1, 1, correlation=n),
                event("kernel", f"triton_{kept(n)}", n * 10 + 2, 3, **launched),
            ]

    return change


def _extern_sites(whole: Json) -> None:
    record = whole[OURS]["graphs"][0]["provenance"]
    site = record["call_sites"][0]
    record["call_sites"] = [site | {"ordinal": n, "path": str(n)} for n in range(3_000)]
    whole[EVENTS] = list(_one_replay_of_many())[:6_000]


def _graphs(whole: Json) -> None:
    graph = whole[OURS]["graphs"][0] | {"key": None}
    small = graph["provenance"] | {"nodes": graph["provenance"]["nodes"][:2]}
    whole[OURS]["graphs"] = [
        graph | {"index": n, "nodes": graph["nodes"][:2], "provenance": small} for n in range(1_000)
    ]
    whole[EVENTS] = [
        e
        for n in range(2_000)
        for e in (
            event("cpu_op", "Torch-Compiled Region: 0/0", n * 10, 9),
            event("cpu_op", "## Call CompiledFxGraph None ##", n * 10 + 1, 7),
            event("cpu_op", "aten::mm", n * 10 + 2, 2, External_id=n),
        )
    ]


def _flows(whole: Json) -> None:
    flow = next(e for e in whole[EVENTS] if e["ph"] == "s")
    whole[EVENTS] += [flow | {"ph": "sf"[n % 2]} for n in range(200_000)]


def _metadata(whole: Json) -> None:
    meta = next(e for e in whole[EVENTS] if e["ph"] == "M")
    whole[EVENTS] += [meta | {"pid": n} for n in range(100_000)]


CASES = {
    "300,000 ops of one time": Case(with_events(_ops_at_one_time)),
    "300,000 ops of one time without length": Case(with_events(_ops_without_length)),
    "300,000 kernels of one time": Case(with_events(_kernels_at_one_time)),
    "100,000 ops, calls and kernels of one time": Case(with_events(_launched_at_one_time)),
    "50,000 eager launches, each at a line": Case(changed(_lines)),
    "ops nested 200,000 deep": Case(with_events(lambda: _nested(200_000))),
    "ops nested 100,000 deep with kernels": Case(with_events(_nested_with_kernels)),
    "50,000 steps": Case(with_events(_steps)),
    "50,000 steps of one time": Case(with_events(_steps_at_one_time)),
    "20,000 steps that overlap and as many kernels": Case(
        with_events(_steps_at_one_time_with_kernels)
    ),
    "50,000 steps of one number": Case(with_events(_steps_of_one_number)),
    "50,000 steps without kernels": Case(with_events(_steps_without_kernels)),
    "100,000 ops that cross like stairs": Case(with_events(_stairs)),
    "30,000 calls of a graph": Case(with_events(_calls)),
    "calls of a graph nested 50,000 deep": Case(with_events(_calls_nested)),
    "30,000 backwards of one number": Case(with_events(_backwards_of_one_number)),
    "20,000 launches in one call": Case(with_events(_one_call_of_many)),
    "50,000 kernels in one replay": Case(with_events(_one_replay_of_many)),
    "30,000 streams": Case(with_events(_streams)),
    "20,000 devices": Case(with_events(_devices)),
    "3,000 devices and as many steps": Case(
        with_events(_devices_and_steps), "has too many steps on too many devices"
    ),
    "50,000 threads": Case(with_events(_threads)),
    "100,000 names of kernels": Case(with_events(_names)),
    "50,000 kernels of one correlation": Case(with_events(_copies_of_one_correlation)),
    "50,000 kernels that overlap": Case(with_events(_overlapping)),
    "30,000 collectives": Case(with_events(_collectives)),
    "20,000 call sites": Case(changed(_sites)),
    "20,000 call sites and as many launches": Case(changed(_sites_and_events)),
    "20,000 call sites of which 100 ran nothing": Case(
        changed(_launches_of_sites(lambda n: n + n // 200))
    ),
    "20,000 call sites that ran the other way round": Case(
        changed(_launches_of_sites(lambda n: 19_899 - n))
    ),
    "3,000 library calls in one replay": Case(changed(_extern_sites)),
    "1,000 equal graphs and 2,000 calls": Case(changed(_graphs)),
    "200,000 flows of one id": Case(changed(_flows)),
    "100,000 metadata events": Case(changed(_metadata)),
}


def good(events: int) -> bytes:
    """Return a good trace of about so many events: the base, again and again."""
    whole = session()
    last = max(e["ts"] + e.get("dur", 0) for e in whole[EVENTS])
    first_ts = min(e["ts"] for e in whole[EVENTS])
    own, whole[EVENTS] = whole[EVENTS], []
    for turn in range(events // len(own) + 1):
        for each in own:
            moved = each | {"ts": each["ts"] + turn * (last - first_ts)}
            whole[EVENTS].append(moved)
    return dumped(whole)
