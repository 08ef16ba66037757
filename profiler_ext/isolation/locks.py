"""The locks of this package: in a forked child each is free.

A fork copies a lock as it is, and not the thread that holds it, so that the child would wait for
ever.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Lock:
    """A lock that one thread at a time holds, as often as it likes.

    Attributes:
        native: Python's own; to hold it runs no code of ours, which could fail.
    """

    def __init__(self) -> None:
        self.reset()
        _LOCKS.add(self)

    def reset(self) -> None:
        """Have nobody hold it; who is within it ends to hold what it began to hold."""
        self.native = threading.RLock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it."""
        with self.native:
            yield

    @contextmanager
    def released(self) -> Iterator[None]:
        """Let others hold it meanwhile, however often this thread does."""
        native, times = self.native, 0
        with suppress(RuntimeError):  # where this thread holds it no more
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
