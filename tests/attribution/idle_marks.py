"""How tests of idle time write a trace down, and what it comes to."""

from __future__ import annotations

from profiler_ext.attribution import attribute
from profiler_ext.records.events import Thread
from profiler_ext.records.recording import Recording
from tests.attribution.reading import assert_conserves
from tests.handmade import Mark, pieces, trace

MAIN, AUTOGRAD, OTHER = Thread(100, 100), Thread(100, 101), Thread(100, 102)
STREAM, PROFILER = Thread(0, 7), Thread(-1, 0)
STEP = Mark("ProfilerStep#1", "user_annotation", MAIN, 0, 1000)


def op(name: str, start_ns: int, end_ns: int, thread: Thread = MAIN) -> Mark:
    return Mark(name, "cpu_op", thread, start_ns, end_ns - start_ns)


def annotation(name: str, start_ns: int, end_ns: int, thread: Thread = MAIN) -> Mark:
    return Mark(name, "user_annotation", thread, start_ns, end_ns - start_ns)


def call(name: str, start_ns: int, end_ns: int, number: int = 0, thread: Thread = MAIN) -> Mark:
    args = {"correlation": number} if number else {}
    return Mark(name, "cuda_runtime", thread, start_ns, end_ns - start_ns, args)


def ran(number: int, start_ns: int, end_ns: int, category: str = "kernel") -> Mark:
    args = {"device": 0, "stream": 7, "correlation": number}
    return Mark("work", category, STREAM, start_ns, end_ns - start_ns, args)


def launch(number: int, start_ns: int, end_ns: int, thread: Thread = MAIN) -> Mark:
    return call("cudaLaunchKernel", start_ns, end_ns, number, thread)


def causes(*marks: Mark) -> list[tuple[str, int, int]]:
    """Return the cause of each piece of idle time, and from when to when it lasts."""
    analysis = attribute(Recording(trace(marks)))
    assert_conserves(analysis)
    return [(p.cause, p.start_ns, p.start_ns + p.duration_ns) for p in pieces(analysis)]
