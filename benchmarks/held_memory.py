"""How much memory is held by what capture keeps, for each FX node."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from typing import Any


def held() -> dict[str, Any]:
    """Return what capture holds for each FX node, before its graphs are asked for and after."""
    from profiler_ext.profiling import switch

    capture = switch.current()
    assert capture is not None
    gc.collect()
    before, on_artifact = (
        sized([capture]),
        [_record_bytes(kept) for kept in capture._registry._graphs],
    )
    graphs = capture.graphs
    gc.collect()
    return {
        "nodes": [len(graph.nodes) for graph in graphs],
        "states": [graph.cache_state.value for graph in graphs],
        "record bytes": on_artifact,
        "held before": before,
        "held after": sized([capture]),
    }


def _record_bytes(kept: Any) -> int:
    artifact = kept._artifact
    return len(artifact.sealed.data if artifact.sealed else artifact.on_artifact or b"")


def sized(roots: Iterable[object]) -> int:
    """Return the bytes of all that can be reached, but for modules, types, code and torch's own.

    Args:
        roots: where to begin.
    """
    todo, seen, total = list(roots), set[int](), 0
    while todo:
        thing = todo.pop()
        if id(thing) in seen or not _is_counted(thing):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        todo += gc.get_referents(thing)
    return total


def _is_counted(thing: object) -> bool:
    kind = type(thing)
    if issubclass(kind, type) or kind.__name__ in ("module", "function", "code", "frame"):
        return False
    return kind.__module__.partition(".")[0] in (
        "builtins",
        "collections",
        "profiler_ext",
        "_thread",
    )
