"""Whether capture is on in this process.

With the short profile of a graph's first calls while it is.

A replay tells no operators, so what its library calls run is learnt from the calls that warm
up and record, where somebody asks for recordings and no run before has learnt it. Kineto leaves
CUPTI attached after that, as after any profile, and then each launch takes longer:
https://github.com/pytorch/pytorch/issues/144455.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch.profiler

from profiler_ext.capture.graphs.registered_graph import CallTarget
from profiler_ext.capture.hooks.installing import Capture
from profiler_ext.errors import UntestedTorchWarning
from profiler_ext.file_io import temporary_folder
from profiler_ext.isolation.locks import Lock
from profiler_ext.records.provenance import GraphInstance, LibraryKernels
from profiler_ext.torch_compat import behaviour, process
from profiler_ext.torch_compat.profilers import USE

LEARN_VARIABLE = "PROFILER_EXT_LEARN"
"""At 0 in the environment nothing is learnt in any process, at 1 though nobody asks for it."""


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
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        self.recording: Any = _OwnProfile(activities=activities)

    def learn(self, graph: GraphInstance) -> LibraryKernels:
        """Tell what each library call ran.

        Returns:
            Pairs of call site and the names of its device events, in order.

        Raises:
            OutputError: There is no folder for what was profiled.
            TraceError: What was profiled of the call cannot be read.
        """
        # Few processes replay a graph: the others shall not load what reads a trace.
        from profiler_ext.attribution.alignment.observed_kernels import library_kernels
        from profiler_ext.kineto.reader import read_trace

        with temporary_folder("what library calls run is not learnt") as folder:
            path = folder / "warmup.json"
            self.recording.export_chrome_trace(str(path))
            events = read_trace(path).events
        return library_kernels(events, graph.call_sites)


_lock = Lock()
_capture: Capture | None = None


def enable(
    *,
    cpu_events: bool | None = None,
    strict: bool = False,
    recompile: bool = False,
    learn: bool = True,
) -> None:
    """Switch capture on, for code that compiles before it profiles.

    Capture watches compiles, not steps. What it watches is not imported for it: a torch that does
    not fit is told when it is, by a warning and by the next profile. Calling it again changes
    nothing, but that ``recompile`` and ``learn`` can be asked for later.

    Args:
        cpu_events: give Inductor's C++ kernels events, so that CPU time can be attributed;
            by default only where there is no accelerator.
        strict: raise what goes wrong in a hook; by default it becomes a gap and a warning.
        recompile: compile those graphs once more that a cache has from a run without capture;
            the cache keeps what is compiled, and the next run has it from there.
        learn: profile the first calls of a CUDA graph whose library calls the store does not know:
            replays do not tell. CUPTI stays, and slows each launch. With ``False``, as
            ``PROFILER_EXT=1`` has it, nothing is profiled before a ``profile`` is made.

    Raises:
        TorchCapabilityError: This torch lacks a place that capture stands on.
    """
    global _capture
    with _lock.held():
        if is_new := _capture is None:
            _capture = _installed(_on_cpu() if cpu_events is None else cpu_events, strict)
        _capture.recompile = _capture.recompile or recompile
        _capture.learns = (
            _capture.learns or learn or (os.environ.get(LEARN_VARIABLE, "0") not in ("", "0"))
        )
        if _capture.capability_error is not None:
            raise _capture.capability_error
    if is_new and (untested := behaviour.untested_version()) is not None:
        warnings.warn(untested, UntestedTorchWarning, stacklevel=2)


def _installed(cpu_events: bool, strict: bool) -> Capture:
    fresh = Capture(cpu_events=cpu_events, strict=strict, warmup=WarmupProfile)
    fresh.install()
    return fresh


def complete() -> None:
    """Have all hooks in place before something is recorded: importing torch's compiler takes long.

    Raises:
        TorchCapabilityError: This torch lacks a place that capture stands on.
    """
    if _capture is not None:
        _capture.install_all()


def disable() -> None:
    """Switch capture off and leave torch as it was found; what was captured is forgotten."""
    global _capture
    with _lock.held():
        if _capture is not None:
            _capture.remove()
            _capture = None


def current() -> Capture | None:
    """Return the capture that is on, if it is."""
    return _capture


def recompiles() -> bool:
    """Tell whether graphs are compiled once more that a cache has from a run without capture."""
    return _capture is not None and _capture.recompile


def graph_of(artifact: Any) -> int | None:
    """Return the index of an artifact's graph instance, where capture knows it."""
    return None if _capture is None else _capture.graph_of(artifact)


def call_target(graph: int) -> CallTarget | None:
    """Return what tells the modules of a graph's calls, if that is not the method that calls."""
    return None if _capture is None else _capture.call_target(graph)


def graphs() -> tuple[GraphInstance, ...]:
    """Return the graph instances of this process."""
    return _capture.graphs if _capture is not None else ()


def _on_cpu() -> bool:
    import torch

    return not torch.accelerator.is_available()


def is_cpu_only(torch_options: dict[str, Any]) -> bool | None:
    """Tell whether options of ``torch.profiler.profile`` ask for the CPU alone."""
    activities = torch_options.get("activities")
    if activities is None:
        return None
    return set(activities) == {torch.profiler.ProfilerActivity.CPU}
