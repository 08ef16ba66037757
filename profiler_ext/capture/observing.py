"""Owns that a failure in a hook harms nobody: what watches is run here, and what fails is kept.

Each hook calls what it wraps exactly once and returns what that returned. What goes wrong in
the observing part is caught, kept as a gap, and warned of once; ``strict`` raises it.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from profiler_ext.errors import CaptureWarning
from profiler_ext.records import Gap, GapReason
from profiler_ext.torch_compat.patches import Call, Point

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Around = tuple[Point, Callable[[Call, Arguments, Keywords], Any]]


class Hooks(Protocol):
    """Some hooks that belong together."""

    def arounds(self) -> list[Around]:
        """Return what is wrapped, and what is called in its place."""


class Observer:
    """Runs the observing parts of the hooks.

    Attributes:
        strict: raise what goes wrong.
        gaps: what went wrong.
    """

    def __init__(self, strict: bool, on_gap: Callable[[Gap], None]) -> None:
        """Take who else keeps the gaps."""
        self.strict = strict
        self.gaps: list[Gap] = []
        self._on_gap = on_gap

    def __call__(self, observe: Callable[..., Any], *arguments: Any) -> Any:
        """Run a part; the user's compile never feels its failure.

        Returns:
            What it returned, or ``None`` where it failed.
        """
        try:
            return observe(*arguments)
        except Exception as error:
            if self.strict:
                raise
            gap = Gap(GapReason.HOOK_FAILED, _failure(observe, error))
            if not self.gaps:
                warnings.warn(f"a capture hook failed ({gap.detail})", CaptureWarning, stacklevel=2)
            self.gaps.append(gap)
            self._on_gap(gap)
            return None


def _failure(observe: Callable[..., Any], error: Exception) -> str:
    """Say what failed and where, in one short line."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error).partition("\n")[0][:200]
    where = f"{Path(place.filename).name}:{place.lineno}"
    return f"{observe.__name__.strip('_')}: {type(error).__name__} at {where}: {text}"
