"""What a program does to its process: limits, timers, hooks of the interpreter, other libraries."""

import asyncio
import atexit
import gc
import logging.config
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
from pathlib import Path

import torch
from training import digest, model, step, train


def _limit(name, most):
    resource.setrlimit(getattr(resource, name), (most, most))


def few_files():
    train(1)
    _limit("RLIMIT_NOFILE", 32)
    train(5)


def closed_files():
    train(1)
    os.closerange(3, 200)
    train(5)


def little_memory():
    train(1)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _limit("RLIMIT_AS", pages * os.sysconf("SC_PAGESIZE") + 60_000_000)
    train(5)


def small_stacks():
    threading.stack_size(256 * 1024)
    thread = threading.Thread(target=train, args=(6,))
    thread.start()
    thread.join()


def timer():
    """Each tick is answered amid a step."""
    train_with_ticks(signal.ITIMER_REAL, signal.SIGALRM, 0.002)


def sampled():
    """As a sampling profiler does."""
    train_with_ticks(signal.ITIMER_PROF, signal.SIGPROF, 0.001)


def train_with_ticks(clock, number, seconds):
    ticks = []
    signal.signal(number, lambda *_: ticks.append(1))
    signal.setitimer(clock, seconds, seconds)
    train(6)
    signal.setitimer(clock, 0)
    print(len(ticks) > 0)


def collector_called():
    phases = []
    gc.callbacks.append(lambda phase, _: phases.append(phase))
    gc.set_threshold(50, 2, 2)
    train(6)
    gc.callbacks.clear()
    print(len(phases) > 0, gc.get_threshold())


def collector_fails():
    def fails(*_):
        raise RuntimeError("in the collector")

    train(2)
    sys.unraisablehook = lambda _: None
    gc.callbacks.append(fails)
    train(4)
    gc.callbacks.clear()


def memory_traced():
    tracemalloc.start()
    train(5)
    print(tracemalloc.is_tracing())


def at_exit():
    for number in range(3):
        atexit.register(print, "at exit", number)
    train(5)
    atexit.register(print, "last")


def trains_at_exit():
    atexit.register(train, 4, "at exit")
    train(1)


def fails_at_exit():
    atexit.register(lambda: 1 / 0)
    train(5)


def thread_exits():
    def leaves():
        train(3, "thread")
        sys.exit(5)

    thread = threading.Thread(target=leaves)
    thread.start()
    thread.join()
    train(3)


def thread_hook():
    threading.excepthook = lambda seen: print(seen.exc_type.__name__, seen.thread.name)
    thread = threading.Thread(target=lambda: train("no number"), name="mine")
    train(2)
    thread.start()
    thread.join()
    train(3)


def replaces_itself():
    train(3)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, __file__, "shallow"])


def starts_itself():
    train(2)
    words = [sys.executable, __file__, "shallow"]
    print(subprocess.run(words, capture_output=True, text=True).stdout)
    train(3)


def shallow():
    sys.setrecursionlimit(400)
    train(6)


def errors_first():
    warnings.simplefilter("error")
    train(6)


def warned_once():
    """Python shows a warning once for each line, however often it is given."""
    for _ in range(6):
        train(1)
        warnings.warn("each step", stacklevel=1)


def warnings_fail():
    def fails(*_, **__):
        raise KeyError("no warning")

    warnings.showwarning = fails
    train(5)


def loggers_disabled():
    logging.config.dictConfig(
        {"version": 1, "disable_existing_loggers": True, "root": {"level": "DEBUG"}}
    )
    train(5)
    print(logging.root.level, [name for name in logging.root.manager.loggerDict if "prof" in name])


def wanders():
    os.makedirs("one/two")
    for folder in ("one", "two", "../..", "one", "..", "/"):
        os.chdir(folder)
        train(1)


def awaits():
    async def one(number):
        train(1, f"task {number}")
        await asyncio.sleep(0)
        return number

    async def main():
        print([await one(number) for number in range(6)])
        print(await asyncio.gather(*map(one, range(3))))
        await asyncio.get_running_loop().run_in_executor(None, train, 1)

    asyncio.run(main())


def generates():
    steps = (step().hex() for _ in iter(int, 1))
    print([next(steps) for _ in range(6)])
    steps.close()


def time_stands():
    time.time = time.monotonic = time.perf_counter = lambda: 5.0
    time.time_ns = time.monotonic_ns = time.perf_counter_ns = lambda: 5
    train(6)


def no_main():
    del sys.modules["__main__"]
    train(6)


def odd_arguments():
    kept, sys.argv = sys.argv, None
    train(6)
    sys.argv = kept


def nowhere_to_import_from():
    train(1)
    kept, sys.path[:] = list(sys.path), []
    train(2)
    sys.path[:] = kept
    train(3)


def lines_unreadable():
    import linecache

    train(1)
    linecache.getline = linecache.getlines = None
    linecache.cache.clear()
    train(5)


def short_tracebacks():
    sys.tracebacklimit = 0
    train(5)
    raise ValueError("told in short")


def hurried():
    """Threads take turns after a microsecond."""
    sys.setswitchinterval(1e-6)
    others = [threading.Thread(target=lambda: [torch.ones(3).sum() for _ in range(200)])]
    for thread in others:
        thread.start()
    train(5)
    for thread in others:
        thread.join()


globals()[sys.argv[1]]()
print(digest(model))
