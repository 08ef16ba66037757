"""Owns access to what a ``torch.profiler.profile`` keeps of its steps, where torch has it.

Source: ``torch/profiler/profiler.py``. This runs in the user's steps: in a torch without one of
these names it does nothing, and the gap that says so stands since capture began.
"""

from __future__ import annotations

from typing import Any

import torch.profiler

from profiler_ext.torch_compat import behaviour, private, process
from profiler_ext.torch_compat.names import running_names

_RECORDING = (
    torch.profiler.ProfilerAction.RECORD,
    torch.profiler.ProfilerAction.RECORD_AND_SAVE,
)


def mark_steps(profiler: torch.profiler.profile, is_marked: Any = True) -> None:
    """Give each step an event, or none; torch gives one by itself only under a schedule.

    Args:
        profiler: whose steps.
        is_marked: what torch asks at each step, for its truth.
    """
    if running_names.RECORD_STEPS.is_available():
        running_names.RECORD_STEPS.put(profiler, is_marked)


def set_recorded_threads(profiler: torch.profiler.profile, *, are_all: bool) -> None:
    """Have a profiler that was prepared record every thread, or the one that starts it.

    Args:
        profiler: whose recording.
        are_all: every thread's operators are recorded.
    """
    config = process.threads_config(are_all=are_all)
    if config is not None and running_names.EXPERIMENTAL_CONFIG.is_available():
        running_names.EXPERIMENTAL_CONFIG.put(profiler.profiler, config)


def reset_action(profiler: torch.profiler.profile) -> None:
    """Let a profiler be as before its first cycle, so that the next step may begin one."""
    states = [running_names.CURRENT_ACTION]
    if behaviour.RESTORES_SCHEDULED_ACTION:
        states.append(running_names.SCHEDULED_ACTION)
    for state in states:
        if state.is_available():
            state.put(profiler, torch.profiler.ProfilerAction.NONE)


def marks_steps(profiler: torch.profiler.profile) -> Any:
    """Return whether each step gets an event."""
    return (
        running_names.RECORD_STEPS.of(profiler) if running_names.RECORD_STEPS.is_available() else None
    )


def begins_recording(profiler: torch.profiler.profile) -> bool:
    """Tell whether a profiler records its next step, and not the one that ends."""
    if private.unavailable((running_names.STEP_NUM, running_names.CURRENT_ACTION)):
        return False
    following = profiler.schedule(running_names.STEP_NUM.of(profiler) + 1)
    return following in _RECORDING and running_names.CURRENT_ACTION.of(profiler) not in _RECORDING
