"""Marks on the device's own time: when its current stream comes to a point of the program.

A mark is an event that is recorded on the stream. The program does not wait for it, and where no
accelerator is in use, or a stream is being captured into a graph, there is none.
"""

from __future__ import annotations

from typing import Any

import torch


def uses_device() -> bool:
    """Tell whether this process uses an accelerator."""
    return _module_in_use() is not None


def device_event() -> Any | None:
    """Return an event recorded on the current stream of the accelerator; ``None`` without one."""
    module = _module_in_use()
    if module is None or _is_capturing(module):
        return None
    mark: Any = module.Event(enable_timing=True)
    mark.record()
    return mark


def elapsed_ns(begin: Any, end: Any) -> int | None:
    """Return how long the device took from one mark to another; ``None`` where it is not there yet.

    Args:
        begin: the mark that was recorded first.
        end: the other, of the same device.
    """
    return round(begin.elapsed_time(end) * 1e6) if end.query() else None


def _is_capturing(module: Any) -> bool:
    """Tell whether work of the current stream is being captured into a graph."""
    is_capturing = getattr(module, "is_current_stream_capturing", None)
    return is_capturing is not None and bool(is_capturing())


def _module_in_use() -> Any | None:
    """Return torch's module of the accelerator, where the program has initialised it.

    To ask whether one is available would initialise its driver, which a program that forks must
    not find done: https://github.com/pytorch/pytorch/issues/40403.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=False)
    if accelerator is None or accelerator.type == "cpu":
        return None
    module: Any = torch.get_device_module(accelerator)
    return module if module.is_initialized() else None
