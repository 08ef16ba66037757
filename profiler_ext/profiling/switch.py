"""Capture on and off in this process, and the short profile of a CUDA graph's first calls."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
import torch.profiler

from profiler_ext.capture.graphs.registered_graph import CallTarget
from profiler_ext.capture.hooks.installing import Capture
from profiler_ext.errors import UntestedTorchWarning
from profiler_ext.file_io import temporary_folder
from profiler_ext.isolation.locks import Lock
from profiler_ext.profiling import MEMORY_VARIABLE
from profiler_ext.profiling.captured_graphs import LEARN_VARIABLE, CapturedGraphs, CaptureProfile
from profiler_ext.records.provenance import GraphInstance, LibraryKernels
from profiler_ext.torch_compat import behaviour, process
from profiler_ext.torch_compat.profilers import USE


class _OwnProfile(torch.profiler.profile):
    """A profile that counts as ours, so that nobody steps aside for it."""

    def start(self) -> None:
        with USE.own():
            super().start()

    def stop(self) -> None:
        with USE.own():
            super().stop()


class WarmupProfile:
    """Profiles one call of a graph.

    A replay shows no operators, so the calls that warm up and record are profiled for the kernels
    of library calls, if recordings are wanted and the store has none. CUPTI stays attached after
    it, as after any profile, which slows each launch:
    https://github.com/pytorch/pytorch/issues/144455.
    """

    @staticmethod
    def is_wanted() -> bool:
        """Tell whether a warm-up call may be profiled now."""
        wanted = os.environ.get(LEARN_VARIABLE) != "0"
        return wanted and process.can_record() and not USE.is_in_use

    def __init__(self) -> None:
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        self.recording: Any = _OwnProfile(activities=activities)

    def learn(self, graph: GraphInstance) -> LibraryKernels:
        """Return the names of each library call's device events."""
        # Few processes replay a graph: the others need no trace reader.
        from profiler_ext.attribution.alignment.observed_kernels import library_kernels
        from profiler_ext.kineto.reader import read_trace

        with temporary_folder("what library calls run is not learnt") as folder:
            path = folder / "warmup.json"
            self.recording.export_chrome_trace(str(path))
            events = read_trace(path).events
        return library_kernels(events, graph.call_sites)


_lock = Lock()
_capture: Capture | None = None
_captured: CapturedGraphs | None = None
_PROFILER = f"{__package__}.profiler"  # which imports this module


def _new_capture_profile() -> CaptureProfile:
    made: CaptureProfile = import_module(_PROFILER).CapturedGraphProfile()
    return made


def enable(
    *,
    cpu_events: bool | None = None,
    strict: bool = False,
    recompile: bool = False,
    learn: bool = True,
) -> None:
    """Switch capture on, for code that compiles before it profiles.

    Capture watches compiles, not steps. It does not import torch's compiler: a torch that does not
    fit is reported when that is imported, by a warning and by the next profile. Calling it again
    only turns on ``recompile`` and ``learn``.

    Args:
        cpu_events: give Inductor's C++ kernels events, so that CPU time can be attributed;
            by default only without an accelerator.
        strict: raise failures in hooks; by default they become gaps and a warning.
        recompile: recompile graphs that a cache has from a run without capture; the cache keeps
            the result for the next run.
        learn: profile the first calls of a CUDA graph whose library calls are not in the store, and
            the captures of the program's own CUDA graphs, as replays show no operators. CUPTI stays
            attached, and slows each launch. With ``False``, as with ``PROFILER_EXT=1``, nothing is
            profiled before a ``profile`` is made.

    Raises:
        TorchCapabilityError: This torch lacks a place that capture needs.
    """
    global _capture, _captured
    with _lock.held():
        if is_new := _capture is None:
            on_cpu = not torch.accelerator.is_available() if cpu_events is None else cpu_events
            fresh = Capture(cpu_events=on_cpu, strict=strict, warmup=WarmupProfile)
            fresh.install()
            _capture = fresh
            _captured = CapturedGraphs(fresh.guard, _new_capture_profile)
            fresh.guard.run("CUDA graphs", _captured.install)
        _capture.recompile = _capture.recompile or recompile
        is_requested = learn or os.environ.get(LEARN_VARIABLE, "0") not in ("", "0")
        _capture.learns = _capture.learns or is_requested
        if _captured is not None:
            _captured.is_wanted = _capture.learns
        if _capture.capability_error is not None:
            raise _capture.capability_error
    if is_new:
        watch_memory()
    if is_new and (untested := behaviour.untested_version()) is not None:
        warnings.warn(untested, UntestedTorchWarning, stacklevel=2)


def watch_memory() -> None:
    """Write a report where memory runs out, if the environment asks for it."""
    if os.environ.get(MEMORY_VARIABLE):
        # Few processes ask for it, and it imports what prints.
        from profiler_ext.profiling import out_of_memory

        if out_of_memory.is_requested():
            out_of_memory.REPORTS.watch(graphs, stacks=True)


def complete() -> None:
    """Install all hooks before a recording: importing torch's compiler takes long."""
    if _capture is not None:
        _capture.install_all()


def when_imported(module: str, install: Callable[[], object]) -> None:
    """Install further hooks once those of a module of torch's compiler are."""
    if _capture is None:
        install()
    else:
        _capture.when_imported(module, install)


def disable() -> None:
    """Switch capture off, remove the hooks, and forget what was captured."""
    global _capture, _captured
    with _lock.held():
        if _captured is not None:
            _captured.remove()
            _captured = None
        if _capture is not None:
            _capture.remove()
            _capture = None


def current() -> Capture | None:
    """Return the capture that is on, if it is."""
    return _capture


def captured_graphs() -> CapturedGraphs | None:
    """Return the CUDA graphs that the program captured itself, while capture is on."""
    return _captured


def recompiles() -> bool:
    """Tell whether graphs that a cache has from a run without capture are recompiled."""
    return _capture is not None and _capture.recompile


def graph_of(artifact: Any) -> int | None:
    """Return the index of an artifact's graph instance, if capture knows it."""
    return None if _capture is None else _capture.graph_of(artifact)


def call_target(graph: int) -> CallTarget | None:
    """Return what identifies the modules of a graph's calls, if not the calling method."""
    return None if _capture is None else _capture.call_target(graph)


def graphs() -> tuple[GraphInstance, ...]:
    """Return the graph instances of this process."""
    return _capture.graphs if _capture is not None else ()


def is_cpu_only(torch_options: dict[str, Any]) -> bool | None:
    """Tell whether options of ``torch.profiler.profile`` select the CPU alone."""
    activities = torch_options.get("activities")
    if activities is None:
        return None
    return set(activities) == {torch.profiler.ProfilerActivity.CPU}
