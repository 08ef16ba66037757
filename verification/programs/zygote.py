"""Programs that start quickly: each runs in a fork of a process that has imported torch.

It reads a request a line, forks, and says the child's id, then its wait status. The child goes
on at the end of this file, so that it ends as a program ends: by Python's own finalization.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import warnings
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pandas  # noqa: F401
    import torch._dynamo
    import torch._inductor.compile_fx
    import torch.profiler  # noqa: F401
    from torch._inductor.cpu_vec_isa import valid_vec_isa_list

valid_vec_isa_list()  # else each program asks eight processes what this CPU can


def next_request() -> dict:
    """Return in a child, with what it is asked to run."""
    for line in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if pid == 0:
            return json.loads(line)
        os.write(1, b"%10d\n" % pid)
        os.write(1, b"%10d\n" % os.waitpid(pid, 0)[1])
    os._exit(0)


def become(request: dict) -> None:
    """Take over the folder, the environment and the streams of a program."""
    os.setsid()
    for number, path in enumerate((os.devnull, request["stdout"], request["stderr"])):
        opened = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)


def run_plain(words: list[str]) -> None:
    sys.argv = words
    sys.path[0] = str(Path(words[0]).resolve().parent)
    runpy.run_path(str(Path(words[0]).absolute()), run_name="__main__")  # as Python names it


request = next_request()
become(request)
mode, words = request["mode"], request["words"]
if mode in ("plain", "in its place"):
    run_plain(words)
elif mode == "run":
    del sys.path[0]
    sys.argv = ["profiler-ext", "run", *request["options"], *words]
    from profiler_ext.cli import main

    sys.exit(main())
elif mode == "enabled":
    import profiler_ext

    profiler_ext.enable()
    run_plain(words)
elif mode == "profile":
    import profiler_ext

    with profiler_ext.profile():
        run_plain(words)
