"""Profilers of the script's own, and what each of them got."""

import sys
import threading
from collections import Counter

import torch
from torch.profiler import profile, schedule, supported_activities
from training import digest, step, train

ALL = list(supported_activities())


def got(prof):
    """Say what a profiler recorded: matrix products, and the marks of its steps."""
    counts = Counter(event.name for event in prof.events())
    marks = sorted(name for name in counts if name.startswith("ProfilerStep"))
    print("got", counts["aten::mm"], counts["Optimizer.step#SGD.step"], marks, flush=True)


def before():
    """It sees the first compile, which is more or less by what the cache has."""
    with profile(activities=ALL) as prof:
        train(1)
    print("got", sum(event.name == "aten::mm" for event in prof.events()) >= 3)
    train(5)


def within():
    train(2)
    with profile(activities=ALL) as prof:
        train(1)
    got(prof)
    train(5)


def after():
    train(5)
    with profile(activities=ALL) as prof:
        train(1)
    got(prof)
    train(1)


def whole():
    with profile(activities=ALL) as prof:
        train(6)
    got(prof)


def scheduled():
    found = []
    with profile(
        activities=ALL,
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=lambda prof: (found.append(prof.step_num), got(prof)),
    ) as prof:
        for _ in range(9):
            train(1)
            prof.step()
    print(found)


def scheduled_later():
    """Its recording begins when ours is over."""
    with profile(
        activities=ALL,
        schedule=schedule(wait=6, warmup=1, active=1, repeat=1),
        on_trace_ready=got,
    ) as prof:
        for _ in range(9):
            train(1)
            prof.step()


def exported():
    import json

    train(1)
    with profile(activities=ALL, record_shapes=True, with_stack=True) as prof:
        train(2)
    prof.export_chrome_trace("own.json")
    with open("own.json") as file:
        events = json.load(file)["traceEvents"]
    print(sum(event.get("name") == "aten::mm" for event in events))
    train(4)


def autograd():
    train(2)
    with torch.autograd.profiler.profile() as prof:
        train(1)
    print("got", Counter(e.name for e in prof.function_events)["aten::mm"])
    train(4)


def nvtx():
    train(2)
    try:
        with torch.autograd.profiler.emit_nvtx():
            train(1)
    except RuntimeError as error:
        print("cannot", str(error)[:60])
    train(4)


def itt():
    train(2)
    try:
        with torch.autograd.profiler.emit_itt():
            train(1)
    except RuntimeError as error:
        print("cannot", str(error)[:60])
    train(4)


def named():
    for _ in range(6):
        with torch.profiler.record_function("my step"):
            train(1)


def in_thread():
    """A thread that profiles itself while the main thread trains."""
    ready, done = threading.Event(), threading.Event()

    def run():
        with profile(activities=ALL) as prof:
            torch.ones(4, 4) @ torch.ones(4, 4)
            ready.set()
            done.wait(600)
        counts = Counter(event.name for event in prof.events())
        print("got", counts["aten::matmul"] >= 1, flush=True)

    train(2)
    thread = threading.Thread(target=run)
    thread.start()
    ready.wait(600)
    train(2)
    done.set()
    thread.join()
    train(3)


def nested():
    """Two at a time, which torch refuses."""
    train(1)
    with profile(activities=ALL) as outer:
        train(1)
        try:
            with profile(activities=ALL):
                train(1)
        except RuntimeError as error:
            print("refused", str(error)[:40], flush=True)
    try:
        got(outer)
    except Exception as error:
        print(type(error).__name__, str(error)[:60], flush=True)
    train(5)


def unstopped():
    """Started, and never stopped."""
    train(2)
    prof = profile(activities=ALL)
    prof.start()
    train(3)


def low_level():
    """The parts of a profiler, one by one."""
    train(1)
    prof = torch.profiler._KinetoProfile(activities=ALL)
    prof.prepare_trace()
    train(1)
    prof.start_trace()
    train(2)
    prof.stop_trace()
    print("got", {e.key: e.count for e in prof.key_averages()}["aten::mm"])
    train(4)


def observed():
    """An execution trace beside the profiler."""
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback("observed.json")
    train(1)
    observer.start()
    train(2)
    observer.stop()
    observer.unregister_callback()
    import json

    with open("observed.json") as file:
        nodes = json.load(file)["nodes"]
    print("got", sum(node["name"] == "aten::mm" for node in nodes))
    train(3)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    step()
    print(digest())
