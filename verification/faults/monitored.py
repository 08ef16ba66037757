"""Whether ``sys.monitoring`` is as Python has it: no tool, no callback, no event anywhere."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

_TOOLS = range(6)
_OF_ANY = (3, 4)
"""The ids that a tool of any kind takes; only theirs are looked for in all code, which is much."""


def left_behind() -> list[str]:
    """Return what tools there are, and what is heard of by ids that no tool has."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        return []
    kept = [f"tool {each}: {name}" for each in _TOOLS if (name := monitoring.get_tool(each))]
    free = [each for each in _TOOLS if monitoring.get_tool(each) is None]
    codes = list(_codes())
    return [*kept, *(text for each in free for text in _observed_by(monitoring, each, codes))]


def _observed_by(monitoring: Any, tool: int, codes: Iterable[CodeType]) -> Iterator[str]:
    """Yield what is left of a tool; an id keeps callbacks and events when it is given back."""
    monitoring.use_tool_id(tool, "looks")
    try:
        if monitoring.get_events(tool):
            yield f"tool {tool}: events everywhere"
        for name, event in vars(monitoring.events).items():
            if event and monitoring.register_callback(tool, event, None) is not None:
                yield f"tool {tool}: a callback of {name}"
        local_events = monitoring.get_local_events
        for code in (
            each for each in (codes if tool in _OF_ANY else ()) if local_events(tool, each)
        ):
            yield f"tool {tool}: events of {code.co_qualname} in {code.co_filename}"
    finally:
        monitoring.free_tool_id(tool)


def _codes() -> Iterator[CodeType]:
    """Yield the code of all functions and of those within them."""
    functions = (each for each in gc.get_objects() if type(each) is FunctionType)
    waiting = [*{id(each.__code__): each.__code__ for each in functions}.values()]
    while waiting:
        code = waiting.pop()
        yield code
        waiting += (each for each in code.co_consts if type(each) is CodeType)
