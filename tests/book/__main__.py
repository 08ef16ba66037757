"""Writes what the commands of the book print now into its pages: ``make examples``.

``python -m tests.book distributed training`` renews the pages of these names.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

from sybil import Document, Example

from tests.book.blocks import EVALUATORS, SHELL, documents
from tests.book.commands import ANY_LINES, Shell, commands
from tests.book.recordings import WIDTH, read_once


def printed(example: Example) -> str:
    """Return a console block with what its commands print now; a shortened output stays.

    Args:
        example: the block.
    """
    shell = example.namespace.setdefault(SHELL, Shell())
    source = example.parsed
    for line, shown in commands(source):
        now = "\n".join(each.rstrip() for each in shell.run(line).splitlines()).strip("\n")
        shortened = re.search(rf"^{re.escape(ANY_LINES)}$", shown, re.MULTILINE)
        if shown.strip() and not shortened:
            source = source.replace(shown.strip("\n"), now, 1)
    return source


def renewed(document: Document) -> str:
    """Return the text of a page with what its commands print now.

    Args:
        document: the page.
    """
    text, at = document.text, 0
    parts = []
    for _, region in document.regions:
        (example,) = (e for e in document.examples() if e.region is region)
        if region.evaluator is EVALUATORS["console"]:
            block = text[region.start : region.end]
            parts += [text[at : region.start], block.replace(example.parsed, printed(example), 1)]
            at = region.end
        else:
            example.evaluate()
    return "".join((*parts, text[at:]))


def main(names: list[str]) -> None:
    """Write the pages anew, or some of them."""
    os.environ["COLUMNS"] = WIDTH
    with read_once():
        for document in documents():
            if names and Path(document.path).stem not in names:
                continue
            os.chdir(tempfile.mkdtemp(prefix="book-"))
            Path(document.path).write_text(renewed(document))


if __name__ == "__main__":
    main(sys.argv[1:])
