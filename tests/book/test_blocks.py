"""Every command and code block of the README and of the book does what the page says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sybil import Document, Example

from tests.book.blocks import PAGES, documents, name
from tests.book.recordings import WIDTH, read_once

DOCUMENTS = documents()
EXAMPLES = [example for document in DOCUMENTS for example in document.examples()]


@pytest.fixture(scope="module", autouse=True)
def recordings() -> Iterator[None]:
    with read_once():
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {document.path: tmp_path_factory.mktemp("page") for document in DOCUMENTS}


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_a_block_does_what_the_page_says(
    example: Example, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folders[example.path])
    monkeypatch.setenv("COLUMNS", WIDTH)
    example.evaluate()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_stands_in_fences_with_a_kind(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    paragraphs = re.split(r"\n\s*\n", text)
    assert [each for each in paragraphs if re.match(r"    +[^\s\-*0-9]", each)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: Path(each.path).name)
def test_a_reason_for_not_running_stands_before_a_block(document: Document) -> None:
    reported = [
        found.end()
        for found in re.finditer(r"^<!-- (?:not run|recorded): .* -->\n", document.text, re.M)
    ]
    starts = {region.start for _, region in document.regions}
    assert [document.line_column(end) for end in reported if end not in starts] == []
