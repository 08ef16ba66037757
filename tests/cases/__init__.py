"""The models that stand for real training steps; each is recorded on a GPU and replayed in CI.

A case is a function that takes a device and returns a ``Case``: what one training step does, and
what must hold of its attribution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

FULL = ("forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class Case:
    """One training step.

    Attributes:
        step: runs it once.
        warmup: how often it runs before it is profiled.
        phases: phases that must have time.
        lines: text that must stand in the code of an attributed line.
        coverage: part of the device time that must be led to a line.
        scope: of which device time: ``compiled``, or ``all`` of it.
        late: compile and warm up before the profiler is there (capture is on all the while).
    """

    step: Callable[[], object]
    warmup: int = 3
    phases: tuple[str, ...] = ("forward", "backward")
    lines: tuple[str, ...] = ()
    coverage: float = 0.999
    scope: str = "compiled"
    late: bool = field(default=False)
