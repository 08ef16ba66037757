"""How a case is written: a good session of a GPU as its base, and what is changed in it."""

from __future__ import annotations

import copy
import functools
import gzip
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cases.neutral import FOLDER, SUFFIX

Json = Any
Maker = Callable[[Path], Path]
"""Writes a case into a folder; returns what is to be read."""

BASE = "one_graph"
EVENTS, OURS = "traceEvents", "profilerExt"


@dataclass(frozen=True)
class Case:
    """One hostile file.

    Attributes:
        make: writes it.
        refused: what the one clear error must say; ``None`` where the file may be read.
    """

    make: Maker
    refused: str | None = None


@functools.lru_cache(maxsize=8)
def text(name: str = BASE) -> bytes:
    """Return the JSON of a recorded session."""
    return gzip.decompress((FOLDER / f"{name}{SUFFIX}").read_bytes())


@functools.lru_cache(maxsize=8)
def _parsed(name: str) -> Json:
    return json.loads(text(name))


def session(name: str = BASE) -> Json:
    """Return a recorded session as JSON values, to be changed."""
    return copy.deepcopy(_parsed(name))


def content(data: bytes, name: str = "case.pt.trace.json") -> Maker:
    """Return the maker of a file with these bytes."""

    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(data)
        return path

    return make


def made(build: Callable[[], bytes], name: str = "case.pt.trace.json") -> Maker:
    """Return the maker of a file whose bytes are built when they are needed."""
    return lambda folder: content(build(), name)(folder)


def dumped(value: Json) -> bytes:
    """Return JSON as Kineto writes it: ``NaN`` bare, a lone surrogate escaped."""
    return json.dumps(value).encode()


def changed(change: Callable[[Json], None], name: str = BASE) -> Maker:
    """Return the maker of a session in which something was changed."""

    def build() -> bytes:
        value = session(name)
        change(value)
        return dumped(value)

    return made(build)


def with_text(old: bytes, new: bytes, name: str = BASE) -> Maker:
    """Return the maker of a session in whose text something was replaced once."""

    def build() -> bytes:
        whole = text(name)
        assert old in whole
        return whole.replace(old, new, 1)

    return made(build)


def with_events(events: Callable[[], Iterable[Json]]) -> Maker:
    """Return the maker of a trace of these events; the graphs stay those of the base."""

    def build() -> bytes:
        value = session()
        value[EVENTS] = []
        head = dumped(value).replace(b'"traceEvents": []', b'"traceEvents": [')
        assert head.endswith(b"[}")
        return head[:-1] + b",\n".join(map(dumped, events())) + b"]}"

    return made(build)


def first(value: Json, category: str) -> Json:
    """Return the first complete event of a category."""
    return next(e for e in value[EVENTS] if e.get("cat") == category and e["ph"] == "X")


def event(
    category: str, name: str, start: float, duration: float, tid: int = 1, **args: Json
) -> Json:
    """Return a complete event; times in microseconds."""
    spelled = {key.replace("_", " "): value for key, value in args.items()}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 5507,
        "tid": tid,
        "ts": start,
        "dur": duration,
        "args": spelled,
    }
