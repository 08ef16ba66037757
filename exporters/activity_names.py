"""Owns what an activity of the CPU is called, where it is why a device was idle."""

from __future__ import annotations

from collections.abc import Iterable

from profiler_ext.kineto.names import graph_key, is_graph_marker
from profiler_ext.records import GraphInstance

PYTHON = "Python outside of any op"
_MAX_CHARS = 48


class ActivityNames:
    """Says in few words what the CPU did: a compiled graph by its number, not by its key."""

    def __init__(self, graphs: Iterable[GraphInstance]) -> None:
        """Take the compiled graphs.

        Args:
            graphs: the graphs.
        """
        self._graphs = {graph.key: graph for graph in graphs if graph.key is not None}

    def short(self, activity: str | None) -> str:
        """Return an activity of the CPU in few words.

        Args:
            activity: the name of an event; ``None`` for Python.
        """
        if activity is None:
            return PYTHON
        if is_graph_marker(activity):
            return self._graph(graph_key(activity))
        is_long = len(activity) > _MAX_CHARS
        return f"{activity[: _MAX_CHARS - 1]}…" if is_long else activity

    def _graph(self, key: str | None) -> str:
        """Return a graph's name; one that bypassed torch's cache has no key, and tells no graph."""
        graph = self._graphs.get(key or "")
        if graph is None:
            return "a compiled graph"
        part = "backward" if graph.runs_backward else "forward"
        return f"compiled graph {graph.compile_id or '?'} {part}"
