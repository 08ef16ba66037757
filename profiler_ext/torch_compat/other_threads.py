"""Which other threads of the program may run operators now.

A thread is known by the code that it was started with, and by whether it waits for another thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType

_MODULES_WITHOUT_OPERATORS = (
    "profiler_ext",
    "IPython.core.history",
    "concurrent.futures.process",
    "ipykernel.control",
    "ipykernel.heartbeat",
    "ipykernel.iostream",
    "ipykernel.parentpoller",
    "ipykernel.shellchannel",
    "multiprocessing.queues",
    "torch._inductor.compile_worker",
    "tqdm._monitor",
    "zmq.utils.garbage",
)
"""Modules whose threads run none. One that pins memory does: that is an operator."""
_WAIT_FUNCTIONS = (
    ("threading", "join"),
    ("threading", "_wait_for_tstate_lock"),
    ("threading", "_shutdown"),
    ("concurrent.futures.thread", "_worker"),
)
"""Functions in which a thread waits until another is over, or for work to be given to it."""


def other_threads() -> tuple[str, ...]:
    """Return the names of the threads that may run operators now, but for this one.

    Those that Python did not start are left out: autograd's run what another thread asks for.
    """
    this_thread, frames = threading.get_ident(), sys._current_frames()
    # A frame that holds itself keeps what the program's frames hold, until Python collects cycles.
    frames.pop(this_thread, None)
    others = (each for each in threading.enumerate() if each.ident != this_thread)
    started = (each for each in others if not isinstance(each, threading._DummyThread))
    return tuple(
        each.name for each in started if _may_run(each, [*_stack(frames.get(each.ident or 0))])
    )


def _may_run(thread: threading.Thread, stack: list[tuple[str, str]]) -> bool:
    own = [module for module, _ in stack if module != "threading"][-1:]
    known = (type(thread).__module__, *own)
    runs_none = any(
        f"{each}.".startswith(f"{n}.") for each in known for n in _MODULES_WITHOUT_OPERATORS
    )
    return not runs_none and not any(each in _WAIT_FUNCTIONS for each in stack[:1])


def _stack(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each function that runs, the innermost first."""
    while frame is not None:
        yield str(frame.f_globals.get("__name__")), frame.f_code.co_name
        frame = frame.f_back
