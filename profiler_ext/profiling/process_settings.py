"""Owns what a recording says of the process that it was made in."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable

from profiler_ext.files.paths import library_roots
from profiler_ext.records import ModuleFrame, PartModules, Settings
from profiler_ext.torch_compat import process


def settings_of_process(
    user_roots: Iterable[str],
    step_source: str,
    called: tuple[tuple[int, ModuleFrame | PartModules], ...],
    asked: tuple[str, ...] = (),
    steps_before_ns: tuple[int, ...] = (),
    steps_before_on_device: bool = False,
) -> Settings:
    """Return the settings of what is recorded in this process.

    Args:
        user_roots: folders whose files are the user's own.
        step_source: what ended a step.
        called: what was called of modules and of parts of graphs that were compiled by themselves,
            by the number in the mark.
        asked: what was asked of the profiler.
        steps_before_ns: how long each of the last steps took, in which no profiler was on.
        steps_before_on_device: by the device's clock.
    """
    world_size = _number("WORLD_SIZE", 1)
    return Settings(
        user_roots=tuple(user_roots),
        library_roots=library_roots(),
        command=tuple(map(str, sys.argv or ())),  # the program may have put anything there
        torch_version=process.version(),
        rank=_number("RANK", 0),
        world_size=world_size,
        step_source=step_source,
        called_modules=tuple((n, each) for n, each in called if isinstance(each, ModuleFrame)),
        called_parts=tuple((n, each) for n, each in called if isinstance(each, PartModules)),
        asked=asked,
        host=platform.node() if world_size > 1 else "",
        steps_before_ns=steps_before_ns,
        steps_before_on_device=steps_before_on_device,
    )


def _number(variable: str, otherwise: int) -> int:
    """Return what a launcher set; these names are the program's too, and may hold anything."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else otherwise
