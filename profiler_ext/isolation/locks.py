"""Locks that are free in a forked child, where the threads that held them do not exist."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Lock:
    """A reentrant lock."""

    def __init__(self) -> None:
        self.reset()
        _LOCKS.add(self)

    def reset(self) -> None:
        """Replace it by a free one; its holders release the old one."""
        self.native = threading.RLock()  # Python's own: holding it runs no code that could fail

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it."""
        with self.native:
            yield

    @contextmanager
    def released(self) -> Iterator[None]:
        """Let others hold it meanwhile, however often this thread does."""
        native, times = self.native, 0
        with suppress(RuntimeError):  # until this thread holds it no more
            while True:
                native.release()
                times += 1
        try:
            yield
        finally:
            for _ in range(times):
                native.acquire()


_LOCKS = weakref.WeakSet[Lock]()


def _reset_all() -> None:
    for lock in tuple(_LOCKS):
        lock.reset()


os.register_at_fork(after_in_child=_reset_all)
