"""Owns which graph each call of a compiled graph runs and what on, noted only while recording.

Equal graphs have one cache key and may have one region id: DDP has a model compiled bucket by
bucket within one frame. Which graph runs is known by the artifact that is called.

Layers whose frames are compiled by themselves share one graph and one region id, so nothing
at compile time tells them apart: blocks compiled one by one, and what a graph break or FSDP's
hooks leave between them. A module's forward hook would be traced and change the graph; what
is noted here lies outside what Dynamo traces.

A graph of compiled autograd is called on no module: it copies the backwards of many forwards.
Which ones is known when it runs, by autograd's numbers, and the trace has those numbers too.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import torch

from profiler_ext.capture.nodes.module_paths import WRAPPED_UNDER
from profiler_ext.guard import Guard, Observation, Observed
from profiler_ext.kineto.names import call_mark
from profiler_ext.records import ModuleFrame
from profiler_ext.torch_compat import compiled_autograd, points, process
from profiler_ext.torch_compat.patches import Patch


class CalledModules:
    """Marks each call with its graph and the module whose frame calls, and knows their paths."""

    def __init__(self, graph_of: Callable[[Any], int | None], guard: Guard) -> None:
        """Note nothing yet.

        Args:
            graph_of: tells the index of an artifact's graph, where it is known.
            guard: what keeps failures from the calls.
        """
        self._graph_of = graph_of
        self._numbers: weakref.WeakKeyDictionary[torch.nn.Module, int] = weakref.WeakKeyDictionary()
        self._patch = Patch(points.ARTIFACT_CALL, self._marked, guard)

    def watch(self) -> None:
        """Begin to mark calls."""
        self._patch.install()

    def leave(self) -> None:
        """Leave torch as it was found."""
        self._patch.remove()

    def paths(self) -> tuple[tuple[int, ModuleFrame], ...]:
        """Return the path of each marked module from the outermost module that holds it."""
        if not self._numbers:
            return ()
        holders = _holders()
        return tuple(
            (number, ModuleFrame(_path(module, holders), type(module).__name__))
            for module, number in sorted(self._numbers.items(), key=lambda item: item[1])
        )

    def _marked(self, call: Observed) -> Observation:
        mark = self._mark(call["self"]) if process.profiler_is_on() else None
        if mark is not None:
            with process.recording(mark):
                yield

    def _mark(self, artifact: Any) -> str | None:
        graph = self._graph_of(artifact)
        calls = compiled_autograd.running_calls() if process.in_compiled_autograd() else None
        if calls is not None:
            return call_mark(graph, copies=calls)
        module = process.calling_module()
        if module is None:
            return call_mark(graph)
        return call_mark(graph, self._numbers.setdefault(module, len(self._numbers)))


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
