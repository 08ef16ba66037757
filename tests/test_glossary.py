"""The glossary is true: each term stands once, and is in the code where the page says."""

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

    term: str
    meaning: str
    places: tuple[str, ...]


def rows() -> Iterator[Row]:
    for line in PAGE.splitlines():
        if line.startswith("| ") and not line.startswith(("| term |", "| --- |")):
            term, meaning, code = (cell.strip() for cell in line.strip("|").split("|"))
            yield Row(term, meaning, tuple(re.findall(r"`([^`]+)`", code)))


ROWS = tuple(rows())


def test_each_term_stands_once_and_has_a_meaning_and_a_place() -> None:
    terms = [row.term for row in ROWS]
    assert len(terms) == len(set(terms)) > 50
    assert [row.term for row in ROWS if not (row.meaning and row.places)] == []


@pytest.mark.parametrize("place", sorted({place for row in ROWS for place in row.places}))
def test_a_term_is_where_the_page_says(place: str) -> None:
    module, _, name = place.partition(":")
    if not name and not is_module(module):
        module, _, name = module.rpartition(".")
    assert not name or hasattr(import_module(f"{PACKAGE}.{module}"), name)


def test_each_record_has_a_term() -> None:
    places = {place.rpartition(".")[2].rpartition(":")[2] for row in ROWS for place in row.places}
    records = (ROOT / PACKAGE / "records").glob("*.py")
    classes = {
        node.name
        for path in records
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    assert classes - places == set()


def is_module(name: str) -> bool:
    parent = f"{PACKAGE}.{name}".rpartition(".")[0]
    return find_spec(parent) is not None and find_spec(f"{PACKAGE}.{name}") is not None
