"""The time that is spent within hooks of capture: measured at the guard, the one door to them.

A ratio of two processes has the noise of both; this is a part of one process. A hook within a
hook's call of torch counts once. What a wrapper takes before it asks its hook, some 0.3 us a call,
is not in it; what the clock takes, twice that, is left out. So is a full collection of garbage that
falls due within a hook: a start has as many without us (``gc``, generation 2).
"""

from __future__ import annotations

import functools
import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from itertools import pairwise
from typing import Any

from profiler_ext.isolation.guard import Guard
from profiler_ext.isolation.hook_protocols import Results


class _Depth(threading.local):
    hooks = 0
    collecting_ns = 0
    collected_ns = 0


def _of_clock_ns() -> int:
    """Return what is measured of nothing."""
    moments = [time.thread_time_ns() for _ in range(1000)]
    return sorted(b - a for a, b in pairwise(moments))[500]


_FULL = 2


class HookTime:
    """The time within hooks, of each.

    Attributes:
        spent_ns: by the name of what is observed.
        calls: the same.
    """

    def __init__(self) -> None:
        self.spent_ns: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._depth = _Depth()
        self._of_clock_ns = _of_clock_ns()

    def begin(self) -> None:
        """Have every hook timed that is installed from here on."""
        gc.callbacks.append(self._collected)
        wrap, on_result, callback = Guard.wrap, Guard.wrap_results, Guard.callback
        timed = self._timed

        def wrapped(guard: Guard, original: Any, hook: str, observe: Any, switch: Any) -> Any:
            return wrap(guard, original, hook, self._observing(hook, observe), switch)

        def results(guard: Guard, original: Any, hook: str, each: Results, switch: Any) -> Any:
            return on_result(guard, original, hook, Results(timed(hook, each.on_result)), switch)

        def called_back(guard: Guard, hook: str, function: Any) -> Any:
            return callback(guard, hook, timed(hook, function))

        Guard.wrap = wrapped  # type: ignore[method-assign,assignment]
        Guard.wrap_results = results  # type: ignore[method-assign,assignment]
        Guard.callback = called_back  # type: ignore[method-assign,assignment]

    def _collected(self, phase: str, on_result: dict[str, int]) -> None:
        here, now_ns = self._depth, time.thread_time_ns()
        if phase == "start":
            here.collecting_ns = now_ns
        elif on_result["generation"] == _FULL:
            here.collected_ns += now_ns - here.collecting_ns

    def _timed(self, hook: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time_ns() - self._depth.collected_ns + self._of_clock_ns
            self._depth.hooks += 1
            try:
                return function(*args, **kwargs)
            finally:
                self._depth.hooks -= 1
                if not self._depth.hooks:
                    ended = time.thread_time_ns() - self._depth.collected_ns
                    self.spent_ns[hook] += ended - began
                    self.calls[hook] += 1

        return timed

    def _observing(self, hook: str, observe: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def observed(call: Any) -> Generator[None, None, None]:
            watch = observe(call)
            follow = self._timed(hook, next)
            if follow(watch, self) is self:
                return
            try:
                yield
            except GeneratorExit:
                self._timed(hook, watch.close)()
                raise
            follow(watch, None)

        return observed
