"""Owns which module each compiled region was called on, noted only while a profiler records.

Blocks that are compiled one by one share one graph and one region id, so nothing at compile
time tells them apart. A module's forward hook would be traced and change the graph; what is
noted here lies outside what Dynamo traces.
"""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import torch

from profiler_ext.capture.module_paths import WRAPPED_UNDER
from profiler_ext.kineto.names import module_mark
from profiler_ext.records import ModuleFrame
from profiler_ext.torch_compat import process


class CalledModules:
    """Marks the calls of modules that are compiled by themselves, and knows their paths."""

    def __init__(self) -> None:
        """Note nothing yet."""
        self._numbers: weakref.WeakKeyDictionary[torch.nn.Module, int] = weakref.WeakKeyDictionary()
        self._watch: process.RegionWatch | None = None
        self._thread = threading.local()

    def watch(self) -> None:
        """Begin to mark calls."""
        self._watch = process.RegionWatch(self._enter, self._exit)

    def leave(self) -> None:
        """Leave torch as it was found."""
        if self._watch is not None:
            self._watch.remove()
            self._watch = None

    def paths(self) -> tuple[tuple[int, ModuleFrame], ...]:
        """Return the path of each marked module from the outermost module that holds it."""
        if not self._numbers:
            return ()
        holders = _holders()
        return tuple(
            (number, ModuleFrame(_path(module, holders), type(module).__name__))
            for module, number in sorted(self._numbers.items(), key=lambda item: item[1])
        )

    def _enter(self, function: Any) -> None:
        module = getattr(function, "__self__", None)
        mark = None
        if isinstance(module, torch.nn.Module) and process.profiler_is_on():
            number = self._numbers.setdefault(module, len(self._numbers))
            mark = process.recording(module_mark(number))
            mark.__enter__()
        self._marks().append(mark)

    def _exit(self, is_outermost: bool) -> None:
        marks = self._marks()
        mark = marks.pop() if marks else None
        if mark is not None:
            mark.__exit__(None, None, None)

    def _marks(self) -> list[Any]:
        marks: list[Any] = vars(self._thread).setdefault("marks", [])
        return marks


_Holders = dict[int, tuple[torch.nn.Module, str]]


def _holders() -> _Holders:
    """Find the module that holds each module, by the attribute it holds it under.

    A wrapper that torch made (``torch.compile``, DDP) stands for the module within it and adds
    no name; it counts only where no module of the user's holds what it wraps.
    """
    found: _Holders = {}
    # By type: asking an object itself would call into proxies whose referent is gone.
    alive = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module)]
    for holder in sorted(alive, key=lambda each: type(each).__name__ in WRAPPED_UNDER):
        attribute = WRAPPED_UNDER.get(type(holder).__name__)
        for name, module in holder.named_children():
            found.setdefault(id(module), (holder, "" if name == attribute else name))
    return found


def _path(module: torch.nn.Module, holders: _Holders) -> str:
    names: list[str] = []
    seen: set[int] = set()
    while id(module) in holders and id(module) not in seen:
        seen.add(id(module))
        module, name = holders[id(module)]
        names.append(name)
    return ".".join(filter(None, reversed(names)))
