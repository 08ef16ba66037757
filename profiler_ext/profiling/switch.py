"""Owns whether capture is on in this process: switching it on early, and off again."""

from __future__ import annotations

import warnings
from typing import Any

import torch.profiler

from profiler_ext.capture.graphs.kept import CallTarget
from profiler_ext.capture.hooks.installing import Capture
from profiler_ext.errors import UntestedTorchWarning
from profiler_ext.isolation.locks import Lock
from profiler_ext.profiling.warmup import WarmupProfile, is_enabled_by_environment
from profiler_ext.records import GraphInstance
from profiler_ext.torch_compat import behaviour

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
        _capture.learns = _capture.learns or learn or is_enabled_by_environment()
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
    """Tell whether options of ``torch.profiler.profile`` ask for the CPU alone.

    Args:
        torch_options: the options.

    Returns:
        ``None`` where they leave it to torch.
    """
    activities = torch_options.get("activities")
    if activities is None:
        return None
    return set(activities) == {torch.profiler.ProfilerActivity.CPU}
