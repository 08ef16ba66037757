"""The observation of what is compiled and launched, so that kernels can be looked into afterwards.

:class:`Inside` is what ``profile(inside=...)`` takes: when its block ends, kernels of the last
session are launched again alone, whole and without the work of each line.
"""

from __future__ import annotations

import gc
import sys
import time
import warnings
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from profiler_ext.errors import CaptureWarning, UsageError
from profiler_ext.inside.selection import chosen_kernels
from profiler_ext.isolation.guard import Guard
from profiler_ext.sessions.session import Session
from profiler_ext.torch_compat import points
from profiler_ext.torch_compat.import_hooks import INDUCTOR, ImportWatcher

if TYPE_CHECKING:
    from collections.abc import Callable

    from profiler_ext.inside.launches import FirstLaunches
    from profiler_ext.inside.selection import ChosenKernel
    from profiler_ext.inside.source_lines import SourceLines
    from profiler_ext.records.analysis import Analysis
    from profiler_ext.records.inside import MeasuredKernel

_MOST, _LIMIT_S = 10, 120.0


class KernelObservation:
    """The kernels that Inductor writes in this process, and the first launch of each."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._observing = ExitStack()
        self._sources: SourceLines | None = None
        self._launches: FirstLaunches | None = None

    def begin(self) -> None:
        """Observe, from when Inductor is imported."""
        if INDUCTOR in sys.modules:
            self._observe()
            return
        watcher = ImportWatcher([INDUCTOR], lambda _: self._observe(), self._guard)
        self._observing.callback(watcher.leave)

    def end(self) -> None:
        """Observe nothing more."""
        self._observing.close()

    def _observe(self) -> None:
        from profiler_ext.inside.launches import FirstLaunches
        from profiler_ext.inside.source_lines import SourceLines
        from profiler_ext.torch_compat import patches

        self._sources, self._launches = SourceLines(self._guard), FirstLaunches()
        self._observing.enter_context(self._sources.observed())
        hooks = [(points.KERNEL_LAUNCHED, self._launches.observe)]
        self._observing.enter_context(patches.installed(hooks, self._guard))

    def chosen(self, analysis: Analysis, name: str, most: int) -> list[ChosenKernel]:
        """Return the kernels that a name means, as :func:`chosen_kernels`.

        Raises:
            UsageError: None of them was generated here, or nothing ran on a GPU.
        """
        torch: Any = import_module("torch")
        if self._sources is None:
            raise UsageError(self._why_nothing())
        if not torch.cuda.is_initialized():
            raise UsageError("nothing ran on a GPU, and kernels are timed there")
        return chosen_kernels(analysis, self._sources.sources, name, most)

    def knocked_out(
        self, chosen: list[ChosenKernel], limit_s: float, tell: Callable[[str], object]
    ) -> list[MeasuredKernel]:
        """Measure kernels on the current device; memory that only a cache holds is freed."""
        import torch

        from profiler_ext.inside.knocking_out import knock_out

        gc.collect()
        torch.cuda.empty_cache()
        launches = {} if self._launches is None else self._launches.by_text()
        return knock_out(chosen, launches, time.monotonic() + limit_s, tell)

    def _why_nothing(self) -> str:
        failures = self._guard.failures
        if failures:
            return f"its compiles could not be observed: {failures[0]}"
        return "nothing was compiled with Inductor, so there are no generated kernels"


class Inside:
    """Which kernels a profile looks into when its block ends.

    Only kernels that are generated after the profile was made can be: compile in its block, or
    between its making and its block, and without Inductor's caches
    (``TORCHINDUCTOR_FORCE_DISABLE_CACHES=1``).
    """

    def __init__(self, name: str = "", *, kernels: int = _MOST, limit_s: float = _LIMIT_S) -> None:
        """Name what to look into.

        Args:
            name: a kernel; ``FILE:LINE`` or a module, for all kernels that compute something of
                it; or nothing, for the kernels that take most time.
            kernels: so many of them.
            limit_s: seconds after which no kernel is begun.
        """
        self._name, self._most, self._limit_s = name, kernels, limit_s
        self._observation: KernelObservation | None = None

    def begin(self, guard: Guard) -> None:
        """Observe what is compiled and launched from here on."""
        self._observation = KernelObservation(guard)
        self._observation.begin()

    def end(self) -> None:
        """Observe nothing more."""
        if self._observation is not None:
            self._observation.end()

    def measured(self, session: Session) -> Session:
        """Return a session with what was measured inside its kernels; warns where nothing was."""
        if self._observation is None:
            return session
        try:
            chosen = self._observation.chosen(session.analysis, self._name, self._most)
        except UsageError as error:
            warnings.warn(f"no kernel was looked into: {error}", CaptureWarning, stacklevel=2)
            return session
        kernels = self._observation.knocked_out(chosen, self._limit_s, _said_nothing)
        return session.with_recording(replace(session.recording, measured=tuple(kernels)))


def _said_nothing(_: Any) -> None:
    """A profile reports no progress."""
