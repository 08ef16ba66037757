"""Cores of the CPU: some for what measures on each GPU, others for processes that wait for it.

Processes that wait import torch meanwhile. On the same cores a step that the CPU sets the pace of
takes longer as long as they do so, when it is timed or when it is recorded.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

__all__ = ["cores_of", "cores_to_wait_on", "measure_on", "wait_elsewhere"]

_CORES = 12  # for each GPU, where others are left
_ALL = sorted(os.sched_getaffinity(0))


def wait_elsewhere(gpus: int) -> None:
    """Move this process to cores that no measurement has, until it measures itself."""
    os.sched_setaffinity(0, cores_to_wait_on(gpus, _ALL))


def measure_on(gpu: str) -> None:
    """Move this process to the cores of a GPU, by its number."""
    os.sched_setaffinity(0, cores_of(gpu, _ALL))


def cores_of(gpu: str, cores: Sequence[int]) -> Sequence[int]:
    """The cores of a GPU; all, where none would be left for others."""
    end = _CORES * (1 + int(gpu)) if gpu.isdecimal() else len(cores)
    return cores[end - _CORES : end] if end < len(cores) else cores


def cores_to_wait_on(gpus: int, cores: Sequence[int]) -> Sequence[int]:
    """The cores of no GPU; all, where there are none."""
    return cores[_CORES * gpus :] or cores
