"""Files are read by several threads at once: msgspec takes a type apart in one of them."""

from __future__ import annotations

import ast
import enum
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import profiler_ext
from profiler_ext import exporters
from profiler_ext.records.stored import known

WITHIN: list[int] = []
BOTH = threading.Barrier(2)


class Watched(enum.EnumMeta):
    """A class is asked for what msgspec found of it; here two threads meet if they can."""

    def __getattr__(cls, name: str) -> Any:
        if name == "__msgspec_cache__":
            try:
                WITHIN.append(BOTH.wait(0.5))
            except threading.BrokenBarrierError:
                WITHIN.append(-1)
        raise AttributeError(name)


class Word(enum.Enum, metaclass=Watched):
    ONE = "one"


@dataclass(frozen=True)
class Record:
    word: Word


def test_two_threads_do_not_take_a_type_apart_at_once() -> None:
    found: list[Record] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(msgspec.convert({"word": "one"}, known(Record)))
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [Record(Word.ONE), Record(Word.ONE)]
    assert WITHIN == [-1]  # nobody else came


def asked_types() -> Iterator[tuple[str, str]]:
    """Yield each type that a value is decoded or converted to, and where."""
    for package in (profiler_ext, exporters):
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                name = ast.unparse(node.func)
                if name == "msgspec.convert":
                    yield path.name, ast.unparse(node.args[1])
                elif name in ("msgspec.json.decode", "msgspec.msgpack.decode"):
                    types = [each.value for each in node.keywords if each.arg == "type"]
                    yield from ((path.name, ast.unparse(each)) for each in types)


@pytest.mark.parametrize(("file", "kind"), sorted(set(asked_types())))
def test_a_type_of_ours_is_known_before_it_is_asked_for(file: str, kind: str) -> None:
    plain = {"dict[str, msgspec.Raw]", "list[msgspec.Raw]", "Id", "str"}
    assert kind in plain or kind.startswith(("known(", "stored.known(")), f"{file}: {kind}"
