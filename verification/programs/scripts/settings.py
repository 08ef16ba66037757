"""Settings of the interpreter and of torch that a program may have."""

import gc
import io
import os
import random
import shutil
import sys
import threading

import torch
from training import digest, model, train


def nothing():
    train(5)


def closed_stdout():
    train(5)
    sys.stdout.close()
    os._exit(0) if len(sys.argv) > 2 else None


def no_stdout():
    train(5)
    sys.stdout = None


def replaced_stdout():
    found = io.StringIO()
    kept, sys.stdout = sys.stdout, found
    train(5)
    print("into the script's own", file=found)
    kept.write(found.getvalue())


def closed_stderr():
    train(2)
    sys.stderr.close()
    train(3)


def no_stderr():
    train(2)
    sys.stderr = None
    train(3)


def traced():
    seen = []

    def tracer(frame, event, arg):
        if "profiler_ext" in frame.f_code.co_filename.replace("wt/program", ""):
            return None
        return None

    sys.settrace(tracer)
    train(5)
    print(sys.gettrace() is tracer, seen)


def profiled():
    calls = []

    def observed(frame, event, arg):
        if event == "call" and frame.f_code.co_name == "train":
            calls.append(1)

    sys.setprofile(observed)
    for _ in range(5):
        train(1)
    sys.setprofile(None)
    print(len(calls))


def debugged():
    """As a debugger does: every frame of the user's own is followed line by line."""
    lines = []

    def tracer(frame, event, arg):
        if frame.f_code.co_filename != __file__:
            return None
        lines.append(event)
        return tracer

    def step():
        train(1)
        return len(lines)

    train(1)
    sys.settrace(tracer)
    for _ in range(4):
        step()
    sys.settrace(None)
    print({event: lines.count(event) for event in sorted(set(lines))})


def profiled_while_recording():
    """As cProfile does, over all calls, C's too."""
    import cProfile
    import pstats

    profile = cProfile.Profile()
    train(1)
    profile.enable()
    train(4)
    profile.disable()
    calls = {name: found[0] for (_, _, name), found in pstats.Stats(profile).stats.items()}
    print(calls["train"], sys.getprofile())


def covered():
    """As coverage does: lines of the user's files, from sys.monitoring where there is one."""
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        train(5)
        return
    seen = set()

    def line(code, number):
        if code.co_filename == __file__:
            seen.add((code.co_name, number))
        return monitoring.DISABLE

    monitoring.use_tool_id(monitoring.COVERAGE_ID, "coverage of its own")
    monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, line)
    monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
    train(5)
    _of_a_covered_line()
    print(len(seen), monitoring.get_tool(monitoring.COVERAGE_ID))
    monitoring.set_events(monitoring.COVERAGE_ID, 0)
    monitoring.free_tool_id(monitoring.COVERAGE_ID)


def _of_a_covered_line():
    return 1


def frozen_between():
    """The collector's frozen objects stay so, and are as many: ours are not among them."""
    train(2)
    gc.collect()
    gc.freeze()
    train(3)
    print(gc.get_freeze_count() > 0)
    gc.unfreeze()
    print(gc.get_freeze_count())


def no_gc():
    gc.disable()
    train(5)
    print(gc.isenabled())


def frozen_gc():
    gc.freeze()
    train(5)
    print(gc.isenabled(), gc.get_threshold())


def default_device():
    train(1)
    torch.set_default_device("meta")
    train(4)
    print(torch.empty(1).device)


def default_dtype():
    torch.set_default_dtype(torch.float64)
    train(5)
    print(torch.empty(1).dtype)


def recursion():
    train(1)
    depth = 0
    frame = sys._getframe()
    while frame:
        depth, frame = depth + 1, frame.f_back
    sys.setrecursionlimit(depth + 60)
    train(5)
    print(sys.getrecursionlimit() - depth)


def randomness():
    random.seed(1)
    train(5)
    print(random.random(), torch.rand(1).item().hex())


def inference():
    with torch.inference_mode():
        print(model(torch.ones(2, 8)).sum().item().hex())
    train(5)


def determinism():
    torch.use_deterministic_algorithms(True)
    torch.autograd.set_detect_anomaly(True)
    train(5)
    print(torch.is_anomaly_enabled())


def deleted_folder():
    os.mkdir("gone")
    os.chdir("gone")
    train(1)
    os.rmdir("../gone")
    train(5)
    print(digest())


def moved():
    os.mkdir("elsewhere")
    os.chdir("elsewhere")
    train(5)
    print(os.listdir("."))


def no_home():
    os.environ.pop("HOME", None)
    train(5)


def no_temporary():
    import tempfile

    tempfile.tempdir = "/no/such/folder"
    train(5)


def cleared_environment():
    kept = dict(os.environ)
    os.environ.clear()
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = kept["TORCHINDUCTOR_CACHE_DIR"]
    train(5)


def lost_modules():
    """A script that clears what it imported."""
    train(2)
    for name in [each for each in sys.modules if each.startswith(("training", "profiler_ext"))]:
        del sys.modules[name]
    train(3)


def replaced_path():
    sys.path[:] = [each for each in sys.path if "wt/program" not in each]
    train(5)


def umask():
    os.umask(0o77)
    train(5)
    print(oct(os.umask(0)))


def threads_left():
    lock = threading.Lock()
    lock.acquire()
    train(5)
    print(threading.active_count())


def warnings_as_errors():
    import warnings

    train(1)
    warnings.simplefilter("error")
    train(4)
    print(len(warnings.filters))


def files_left():
    train(5)
    print(sorted(os.listdir("/proc/self/fd"), key=int)[:3])
    shutil.rmtree("nothing", ignore_errors=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    if sys.stdout is not None and not sys.stdout.closed:
        print(digest())
