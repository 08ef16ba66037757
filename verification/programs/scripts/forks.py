"""A process that forks while it trains; ``before``, ``recording``, ``after`` say when."""

import os
import sys
import time

import torch

if len(sys.argv) > 2 and sys.argv[2] == "before":
    FIRST, LAST = 0, 6
elif sys.argv[2] in ("recording", "compiling"):
    FIRST, LAST = 2, 4
else:
    FIRST, LAST = 5, 1

from training import digest, step, train


def child(how):
    if how == "trains":
        train(2, "child")
        print("child", digest(), flush=True)
        sys.exit(4)
    if how == "exits":
        sys.exit(5)
    if how == "leaves":
        os._exit(6)
    if how == "raises":
        raise RuntimeError("the child fails")
    if how == "profiles":
        with torch.profiler.profile() as prof:
            step()
        counts = {each.key: each.count for each in prof.key_averages()}
        print("child profiled", counts["aten::mm"], flush=True)
        sys.exit(0)
    if how == "interrupted":
        import signal

        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(50)


def finished(pid):
    """Wait for the child, but not for ever."""
    for _ in range(2_000):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "hung"


def fork_compiling():
    """Fork amid a compile, from a backend of the script's."""
    from torch._inductor.compile_fx import compile_fx

    found = []

    def backend(gm, inputs):
        found.append(os.fork())
        return compile_fx(gm, inputs)

    torch.compile(lambda x: x @ x, backend=backend)(torch.ones(4, 4))
    return found[0]


train(FIRST)
forked = fork_compiling() if sys.argv[2] == "compiling" else os.fork()
if forked == 0:
    child(sys.argv[1])
    train(1, "child at the end")  # "goes on" to the end of the script
else:
    print("child ended", finished(forked), flush=True)
    train(LAST)
    print(digest(), flush=True)
