"""The cases of size: legal traces that a slow algorithm hangs on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from profiler_ext.records.recording import (
    ClockMark,
    Function,
    Position,
    PythonLines,
    thread_positions,
)
from verification.hostile import streams
from verification.hostile.making import (
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


def _lines(whole: Json, launches: int = 50_000) -> None:
    """Eager launches, each at a line of its own: as many positions of one thread."""
    whole[EVENTS] = [event("cpu_op", "profiler_ext: clock 0", 0, 1)]
    times = range(10_000, 10_000 + 10_000 * launches, 10_000)
    for n in range(launches):
        at = 10 * n + 11
        whole[EVENTS] += [
            event("cpu_op", "aten::mm", at, 8, External_id=n),
            event("cuda_runtime", "cudaLaunchKernel", at + 2, 1, External_id=n, correlation=n),
            event("kernel", "gemm", at + 4, 1, 7, External_id=n, correlation=n, device=0, stream=7),
        ]
    python = PythonLines(
        functions=(Function("/src/train.py", "step"),),
        modules=(),
        positions=tuple(Position(None, 0, n % 1000 + 1) for n in range(launches)),
        threads=(thread_positions(1, [*times], [*range(launches)]),),
        clock=(ClockMark(0, -1, 1_001),),
        end_ns=times[-1] + 10_000,
    )
    whole[OURS]["python"] = msgspec.to_builtins(python)


def _sites(whole: Json) -> None:
    record = whole[OURS]["graphs"][0]["provenance"]
    site = record["call_sites"][0]
    record["call_sites"] = [
        site | {"ordinal": n, "path": str(n), "kernel": f"triton_{n}", "kind": "triton", "op": None}
        for n in range(20_000)
    ]


def _sites_and_events(whole: Json) -> None:
    _sites(whole)
    whole[EVENTS] = list(streams.one_call_of_many())


def _launches_of_sites(kept: Callable[[int], int]) -> Callable[[Json], None]:
    """Return what makes 20,000 call sites, and the launches of those that are kept, in order."""

    def change(whole: Json) -> None:
        _sites(whole)
        whole[EVENTS] = [event("cpu_op", streams.MARKER, 0, 1e7)]
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
    whole[EVENTS] = list(streams.one_replay_of_many())[:6_000]


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
    "100,000 ops of one time": Case(with_events(lambda: streams.ops_at_one_time(100_000))),
    "20,000 eager launches, each at a line": Case(changed(partial(_lines, launches=20_000))),
    "ops nested 80,000 deep": Case(with_events(lambda: streams.nested(80_000))),
    "20,000 steps": Case(with_events(lambda: streams.steps(20_000))),
    "300,000 ops of one time": Case(with_events(streams.ops_at_one_time)),
    "300,000 ops of one time without length": Case(with_events(streams.ops_without_length)),
    "300,000 kernels of one time": Case(with_events(streams.kernels_at_one_time)),
    "100,000 ops, calls and kernels of one time": Case(with_events(streams.launched_at_one_time)),
    "50,000 eager launches, each at a line": Case(changed(_lines)),
    "ops nested 200,000 deep": Case(with_events(lambda: streams.nested(200_000))),
    "ops nested 100,000 deep with kernels": Case(with_events(streams.nested_with_kernels)),
    "50,000 steps": Case(with_events(streams.steps)),
    "50,000 steps of one time": Case(with_events(streams.steps_at_one_time)),
    "20,000 steps that overlap and as many kernels": Case(
        with_events(streams.steps_at_one_time_with_kernels)
    ),
    "50,000 steps of one number": Case(with_events(streams.steps_of_one_number)),
    "50,000 steps without kernels": Case(with_events(streams.steps_without_kernels)),
    "100,000 ops that cross like stairs": Case(with_events(streams.stairs)),
    "30,000 calls of a graph": Case(with_events(streams.calls)),
    "calls of a graph nested 50,000 deep": Case(with_events(streams.calls_nested)),
    "30,000 backwards of one number": Case(with_events(streams.backwards_of_one_number)),
    "20,000 launches in one call": Case(with_events(streams.one_call_of_many)),
    "50,000 kernels in one replay": Case(with_events(streams.one_replay_of_many)),
    "30,000 streams": Case(with_events(streams.streams)),
    "20,000 devices": Case(with_events(streams.devices)),
    "3,000 devices and as many steps": Case(
        with_events(streams.devices_and_steps), "has too many steps on too many devices"
    ),
    "50,000 threads": Case(with_events(streams.threads)),
    "100,000 names of kernels": Case(with_events(streams.names)),
    "50,000 kernels of one correlation": Case(with_events(streams.copies_of_one_correlation)),
    "50,000 kernels that overlap": Case(with_events(streams.overlapping)),
    "30,000 collectives": Case(with_events(streams.collectives)),
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
