"""The glossary is true: its words are in the code, each once, and the words before them are not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "profiler_ext"
PAGE = (ROOT / "docs" / "glossary.md").read_text()


class Row(NamedTuple):
    """A line of a table of the page."""

    word: str
    meaning: str
    places: tuple[str, ...]
    replaced: tuple[str, ...]


def rows() -> Iterator[Row]:
    for line in PAGE.splitlines():
        if line.startswith("| ") and not line.startswith(("| word |", "| --- |")):
            word, meaning, code, before = (cell.strip() for cell in line.strip("|").split("|"))
            places = tuple(re.findall(r"`([^`]+)`", code))
            yield Row(word, meaning, places, tuple(filter(None, before.split(", "))))


ROWS = tuple(rows())


def names_in(source: Path) -> Iterator[str]:
    """List the names of a module, its classes and functions, in small letters with underscores."""
    yield source.stem if source.stem != "__init__" else source.parent.name
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name).lower().strip("_")


def test_each_word_stands_once_and_has_a_meaning_and_a_place() -> None:
    words = [row.word for row in ROWS]
    assert len(words) == len(set(words)) > 50
    assert [row.word for row in ROWS if not (row.meaning and row.places)] == []


@pytest.mark.parametrize("place", sorted({place for row in ROWS for place in row.places}))
def test_a_word_is_where_the_page_says(place: str) -> None:
    module, _, name = place.partition(":")
    if not name and not is_module(module):
        module, _, name = module.rpartition(".")
    assert not name or hasattr(import_module(f"{PACKAGE}.{module}"), name)


def test_no_module_class_or_function_has_a_word_of_before() -> None:
    meant = {row.word for row in ROWS}
    before = {word.replace(" ", "_") for row in ROWS for word in row.replaced} - meant
    sources = [*(ROOT / PACKAGE).rglob("*.py"), *(ROOT / "exporters").rglob("*.py")]
    named = {(path.name, name) for path in sources for name in names_in(path)}
    assert {pair for pair in named if pair[1] in before} == set()


def test_each_record_has_a_word() -> None:
    places = {place.rpartition(".")[2].rpartition(":")[2] for row in ROWS for place in row.places}
    records = import_module(f"{PACKAGE}.records")
    classes = {name for name in records.__all__ if isinstance(getattr(records, name), type)}
    assert classes - places == set()


def is_module(name: str) -> bool:
    parent = f"{PACKAGE}.{name}".rpartition(".")[0]
    return find_spec(parent) is not None and find_spec(f"{PACKAGE}.{name}") is not None
