"""The cases of times: clocks that jump, spans that cross, numbers that overflow."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from verification.hostile.making import EVENTS, Case, Json, changed, event, with_events


def _times(change: Callable[[int, Json], None], name: str = "one_graph") -> Case:
    def each(whole: Json) -> None:
        timed = [e for e in whole[EVENTS] if e["ph"] == "X"]
        for at, one in enumerate(timed):
            change(at, one)

    return Case(changed(each, name))


def _set(**values: Json) -> Case:
    return _times(lambda at, one: one.update(values))


def _back(at: int, one: Json) -> None:
    one["ts"] -= at * 1000


def _jump(at: int, one: Json) -> None:
    one["ts"] += 1e12 if at % 3 == 0 else 0


def _shuffled(whole: Json) -> None:
    random.Random(1).shuffle(whole[EVENTS])


def _swapped(at: int, one: Json) -> None:
    one["ts"], one["dur"] = one["dur"], one["ts"]


def _of(category: str, **values: Json) -> Case:
    return _times(lambda at, one: one.update(values) if one["cat"] == category else None)


def _without(*categories: str) -> Case:
    def drop(whole: Json) -> None:
        whole[EVENTS] = [e for e in whole[EVENTS] if e.get("cat") not in categories]

    return Case(changed(drop))


def _only(category: str) -> Case:
    def keep(whole: Json) -> None:
        whole[EVENTS] = [e for e in whole[EVENTS] if e.get("cat") == category]

    return Case(changed(keep))


def _all_args(**values: Json) -> Case:
    def put(at: int, one: Json) -> None:
        one.setdefault("args", {}).update({k.replace("_", " "): v for k, v in values.items()})

    return _times(put)


def _circle() -> Iterator[Json]:
    for n in range(50):
        yield event("cpu_op", f"op{n}", n, 100, External_id=n % 7)
        yield event("cpu_op", f"op{n}", 100 - n, n + 1, External_id=n % 7)


def _wide() -> Iterator[Json]:
    for n in range(-50, 50):
        yield event("kernel", "k", n * 1.8e14, 1.0, device=0, stream=7)


CASES = {
    "every event at one time": _set(ts=5.0),
    "every event without length": _set(dur=0.0),
    "every event at one time without length": _set(ts=5.0, dur=0.0),
    "every event of a length below zero": _set(dur=-5.0),
    "a kernel of a length below zero": _of("kernel", dur=-1e6),
    "an op of a length below zero": _of("cpu_op", dur=-1e6),
    "a step of a length below zero": _of("user_annotation", dur=-1e6),
    "every event at the end of time": _set(ts=9.2e15, dur=1e3),
    "every event past the end of time": _set(ts=9.2e15, dur=9.2e15),
    "every event before the start of time": _set(ts=-9.2e15, dur=1.0),
    "times from end to end": _times(lambda at, one: one.update(ts=9e15 if at % 2 else -9e15)),
    "durations of a century": _set(dur=3.2e15),
    "kernels of a century": _of("kernel", dur=3.2e15),
    "a step of a century": _of("user_annotation", dur=3.2e15),
    "time and duration swapped": _times(_swapped),
    "a clock that runs back": _times(_back),
    "a clock that jumps": _times(_jump),
    "events in any order": Case(changed(_shuffled)),
    "kernels before their launch": _of("kernel", ts=1.0),
    "kernels long after the steps": _of("kernel", ts=8e15),
    "kernels far apart": Case(with_events(_wide)),
    "spans that cross": Case(with_events(_circle)),
    "no GPU events": _without("kernel", "gpu_memset", "gpu_memcpy"),
    "no CPU events": _without("cpu_op", "user_annotation"),
    "no launch calls": _without("cuda_runtime", "cuda_driver"),
    "no events of a kind": _without("cpu_op", "kernel", "cuda_runtime", "user_annotation"),
    "kernels alone": _only("kernel"),
    "launch calls alone": _only("cuda_runtime"),
    "steps alone": _only("user_annotation"),
    "flows alone": _only("ac2g"),
    "ids that are all the same": _all_args(External_id=7, correlation=7),
    "ids below zero": _all_args(External_id=-7, correlation=-7, device=-1, stream=-1),
    "devices of 64 bits": _all_args(device=2**62, stream=-(2**62)),
    "sequence numbers of 64 bits": _all_args(Sequence_number=2**63 - 1, Fwd_thread_id=2**63 - 1),
    "one thread for all": _set(pid=1, tid=1),
    "threads of text": _set(pid="é\ud800", tid="stream 7"),
    "threads of 64 bits": _set(pid=2**63 - 1, tid=-(2**63)),
    "threads past 64 bits": _set(pid=2**64, tid=10**30),
    "names of steps alone": _of("cpu_op", name="ProfilerStep#1"),
    "a step of a huge number": _of("user_annotation", name="ProfilerStep#" + "9" * 30),
    "a step of 5,000 digits": _of("user_annotation", name="ProfilerStep#" + "9" * 5000),
    "a step of odd digits": _of("user_annotation", name="ProfilerStep#٣"),
    "every op a marker": _of("cpu_op", name="## Call CompiledFxGraph x ##"),
    "every op a region": _of("cpu_op", name="Torch-Compiled Region: 0/0"),
    "every op a compiled backward": _of("cpu_op", name="CompiledFunctionBackward"),
    "every op a mark of ours": _of("cpu_op", name="profiler_ext: module " + "9" * 5000),
    "every op a mark of copies": _of("cpu_op", name="profiler_ext: copies aot0_1=" + "9" * 5000),
    "every kernel a collective": _of("kernel", name="ncclDevKernel_AllReduce_Sum"),
    "every call a replay": _of("cuda_runtime", name="cudaGraphLaunch"),
}
