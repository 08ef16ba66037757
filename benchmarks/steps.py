"""What benchmarks do with a step: wait for its device, and record some of it."""

from __future__ import annotations

from collections.abc import Callable

import torch

import profiler_ext

Step = Callable[[], None]


def synchronize() -> None:
    """Wait for the device, where there is one."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def recorded(step: Step, steps: int, *, before: int = 6, warm_up: int = 2) -> profiler_ext.Session:
    """Return the session of some steps.

    Args:
        step: what runs in each.
        steps: so many are recorded.
        before: so many run before all, with no profiler: what a step takes is known by them.
        warm_up: so many run then, with the profiler on.
    """
    schedule = torch.profiler.schedule(wait=before, warmup=warm_up, active=steps)
    with profiler_ext.profile(schedule=schedule) as prof:
        for _ in range(before + warm_up + steps):
            step()
            prof.step()
    synchronize()
    session: profiler_ext.Session = prof.session
    return session
