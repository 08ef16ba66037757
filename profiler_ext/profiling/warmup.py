"""Owns the short profile of a graph's first calls, before CUDA graphs replay it.

A replay tells no operators, so what its library calls run is learnt from the calls that warm
up and record, where somebody asks for recordings and no run before has learnt it. Kineto leaves
CUPTI attached after that, as after any profile, and then each launch takes longer:
https://github.com/pytorch/pytorch/issues/144455.
"""

from __future__ import annotations

import os
from typing import Any

import torch.profiler

from profiler_ext.files.passing import temporary_folder
from profiler_ext.records import GraphInstance, LibraryKernels
from profiler_ext.torch_compat import process
from profiler_ext.torch_compat.profiler_use import USE

LEARN_VARIABLE = "PROFILER_EXT_LEARN"
"""At 0 in the environment nothing is learnt in any process, at 1 though nobody asks for it."""


def is_enabled_by_environment() -> bool:
    """Tell whether the environment asks for it, whoever records or not."""
    return os.environ.get(LEARN_VARIABLE, "0") not in ("", "0")


class _OwnProfile(torch.profiler.profile):
    """A profile that is known to be ours, so that nobody steps aside for it."""

    def start(self) -> None:
        with USE.own():
            super().start()

    def stop(self) -> None:
        with USE.own():
            super().stop()


class WarmupProfile:
    """Profiles one call of a graph."""

    @staticmethod
    def is_wanted() -> bool:
        """Tell whether a warm-up call may be profiled now."""
        wanted = os.environ.get(LEARN_VARIABLE) != "0"
        return wanted and process.can_record() and not USE.is_in_use

    def __init__(self) -> None:
        """Prepare; it records while ``recording`` is entered."""
        activities = [
            torch.profiler.ProfilerActivity.CPU,
            torch.profiler.ProfilerActivity.CUDA,
        ]
        self.recording: Any = _OwnProfile(activities=activities)

    def learn(self, graph: GraphInstance) -> LibraryKernels:
        """Tell what each library call ran.

        Args:
            graph: the graph that was called.

        Returns:
            Pairs of call site and the names of its device events, in order.

        Raises:
            OutputError: There is no folder for what was profiled.
            TraceError: What was profiled of the call cannot be read.
        """
        # Few processes replay a graph: the others shall not load what reads a trace.
        from profiler_ext.attribution.alignment.learning import library_kernels
        from profiler_ext.kineto.reader import read_trace

        with temporary_folder("what library calls run is not learnt") as folder:
            path = folder / "warmup.json"
            self.recording.export_chrome_trace(str(path))
            events = read_trace(path).events
        return library_kernels(events, graph.call_sites)
