"""The cases of single fields: each field of an event, the header and our section, with each
value that does not belong there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from verification.hostile.making import EVENTS, OURS, Case, Json, changed, first

VALUES: dict[str, Json] = {
    "null": None,
    "true": True,
    "-1": -1,
    "0": 0,
    "1.5": 1.5,
    "2**62": 2**62,
    "2**63": 2**63,
    "2**64": 2**64,
    "-(2**63)": -(2**63),
    "10**30": 10**30,
    "1e308": 1e308,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "text": "x",
    "no text": "",
    "digits as text": "12",
    "a surrogate": "\ud800",
    "a list": [],
    "a list of lists": [[[]]],
    "an object": {},
    "an object of objects": {"a": {"b": None}},
}
MISSING = "missing"
_TOP = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")
_ARGS = {
    "cpu_op": ("External id", "Sequence number", "Fwd thread id", "Input Dims", "Call stack"),
    "kernel": (
        "External id",
        "correlation",
        "device",
        "stream",
        "grid",
        "block",
        "registers per thread",
        "est. achieved occupancy %",
        "Collective name",
        "Process Group Name",
        "Seq",
        "In msg nelems",
        "stack",
        "bytes",
        "compile.added",
        "compile.lines",
    ),
    "cuda_runtime": ("correlation", "External id", "cbid"),
}
_HEADER = (
    "schemaVersion",
    "baseTimeNanoseconds",
    "deviceProperties",
    "distributedInfo",
    "displayTimeUnit",
    "traceName",
    EVENTS,
    OURS,
)
_DEVICE = ("id", "name", "numSms", "computeMajor", "totalGlobalMem", "warpSize")
_FLOW = ("id", "pid", "tid", "ts", "cat", "name", "bp")


def _set(holder: Callable[[Json], Json], key: Any, value: Json) -> Case:
    def change(whole: Json) -> None:
        if value is MISSING:
            holder(whole).pop(key, None)
        else:
            holder(whole)[key] = value

    return Case(changed(change))


def _holders() -> Iterator[tuple[str, Callable[[Json], Json], tuple[str, ...]]]:
    for category in ("cpu_op", "kernel", "cuda_runtime", "user_annotation"):
        yield category, lambda whole, c=category: first(whole, c), _TOP
    for category, keys in _ARGS.items():
        yield f"{category}.args", lambda whole, c=category: first(whole, c)["args"], keys
    yield "header", lambda whole: whole, _HEADER
    yield "device", lambda whole: whole["deviceProperties"][0], _DEVICE
    yield "flow", lambda whole: next(e for e in whole[EVENTS] if e["ph"] == "s"), _FLOW
    yield "metadata", lambda whole: next(e for e in whole[EVENTS] if e["ph"] == "M"), _TOP
    yield "ours", lambda whole: whole[OURS], ("schema", "settings", "graphs", "gaps")
    yield "settings", lambda whole: whole[OURS]["settings"], _keys("settings")
    yield "graph", _graph, _keys("graphs", 0)
    yield "provenance", lambda whole: _graph(whole)["provenance"], _keys("graphs", 0, "provenance")
    for place in ("graph", "provenance"):
        yield (
            f"{place}.node",
            lambda whole, p=place: _node(whole, p),
            _keys("graphs", 0, "nodes", 3),
        )
    yield (
        "frame",
        lambda whole: _node(whole, "graph")["stack"][-1],
        (
            "file",
            "line",
            "function",
            "code",
        ),
    )
    yield "site", _site, _keys("graphs", 0, "provenance", "call_sites", 0)
    yield (
        "tensor",
        lambda whole: _node(whole, "graph")["outputs"][0],
        (
            "dtype",
            "size",
            "stride",
            "device",
        ),
    )


def _graph(whole: Json) -> Json:
    return whole[OURS]["graphs"][0]


def _node(whole: Json, place: str) -> Json:
    graph = _graph(whole)
    return (graph if place == "graph" else graph["provenance"])["nodes"][3]


def _site(whole: Json) -> Json:
    return _graph(whole)["provenance"]["call_sites"][0]


def _keys(*path: Any) -> tuple[str, ...]:
    from verification.hostile.making import session

    at = session()[OURS]
    for step in path:
        at = at[step]
    return tuple(at)


def cases() -> dict[str, Case]:
    """Return every field with every value."""
    found: dict[str, Case] = {}
    for place, holder, keys in _holders():
        for key in keys:
            found[f"{place}.{key} is {MISSING}"] = _set(holder, key, MISSING)
            for name, value in VALUES.items():
                found[f"{place}.{key} is {name}"] = _set(holder, key, value)
    return found


CASES = cases()
