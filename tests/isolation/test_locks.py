"""A fork while another thread holds a lock of ours leaves the child free to go on."""

from __future__ import annotations

import ast
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import profiler_ext
from profiler_ext.isolation.guard import Guard
from profiler_ext.isolation.locks import Lock
from profiler_ext.profiling import switch
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.torch_compat.profilers import USE
from tests.analyses import gpu_step
from tests.compiling import capture, fresh_torch
from tests.patience import patience_s

__all__ = ["fresh_torch"]
ROOT = Path(profiler_ext.__file__).parent
_LIMIT_S = patience_s(20)


@contextmanager
def held_by_another_thread(lock: Lock) -> Iterator[None]:
    is_held, released = threading.Event(), threading.Event()

    def hold() -> None:
        with lock.held():
            is_held.set()
            released.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    try:
        yield
    finally:
        released.set()
        thread.join()


def ended_in_child(work: Callable[[], object]) -> int:
    """Do some work in a forked child, and return how that ended: by SIGALRM where it hangs."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_LIMIT_S)
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class RegisteredGraph:
    """What the registry keeps of a graph, already read."""

    def __init__(self, instance: GraphInstance) -> None:
        self.instance = instance

    def change(self, **changes: object) -> None:
        self.instance = replace(self.instance, **changes)


def listen() -> None:
    USE.listen(print, Guard())
    USE.forget(print)


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("which", ["switch", "use", "registry"])
def test_a_child_goes_through_a_lock_that_another_thread_held_when_it_was_forked(which) -> None:
    profiler_ext.enable()
    registry = capture()._registry
    first = replace(gpu_step().recording.graphs[0], provenance=None)
    registry._graphs.append(RegisteredGraph(first))
    lock, work = {
        "switch": (switch._lock, profiler_ext.disable),
        "use": (USE._lock, listen),
        "registry": (registry._lock, lambda: registry.learn(0, ((0, ("k",)),))),
    }[which]
    with held_by_another_thread(lock):
        assert ended_in_child(work) == 0


def test_who_forks_while_it_holds_a_lock_goes_on_in_the_child() -> None:
    lock = Lock()

    def work() -> None:
        with lock.held():
            pass

    with lock.held(), lock.held():
        assert ended_in_child(work) == 0
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)


def test_a_lock_is_one_thread_s_at_a_time() -> None:
    lock, entered = Lock(), []

    def enter() -> None:
        with lock.held():
            entered.append(1)

    with held_by_another_thread(lock):
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join(0.2)
        assert entered == []
    thread.join()
    assert entered == [1]


def test_every_lock_of_ours_is_made_by_the_one_home_of_locks() -> None:
    """So a lock that a fork could leave held is found here; that of types no fork may come amid."""
    makers = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier"}
    found = set()
    for path in (*ROOT.rglob("*.py"), *(ROOT / "exporters").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            is_ours = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "locks"
            if isinstance(node, ast.Attribute) and node.attr in makers and not is_ours:
                found.add((path.name, node.attr))
            if isinstance(node, ast.ImportFrom) and node.module == "threading":
                found |= {(path.name, each.name) for each in node.names if each.name in makers}
    assert found == {
        ("locks.py", "RLock"),
        ("stored.py", "RLock"),
        ("accelerator.py", "Event"),  # of a device's stream
    }
