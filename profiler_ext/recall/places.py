"""Owns where a source function was called: what a Dynamo graph tells of a node."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_ext.records import Frame, ModuleFrame


@dataclass(frozen=True, slots=True)
class Source:
    """Where a source function was called."""

    stack: tuple[Frame, ...]
    modules: tuple[ModuleFrame, ...]
    annotation: tuple[tuple[str, str], ...] = ()
