"""What is done with each kind of block, and which kinds there are."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from sybil import Document, Example, Region, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

import profiler_ext
from tests.book.commands import STATUS, Shell, check_readable, commands, fits
from tests.book.recordings import lay

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
SHELL = "shell"
_INFO = re.compile(r"(?P<language>[\w-]*)[^\n]*\n")
_COMMENT = re.compile(r"^<!-- (?P<what>sessions|not run): (?P<words>[^>]+) -->\n", re.MULTILINE)
_NAMES = {"profiler_ext": profiler_ext, "np": np, "pd": pd}
_SESSIONS = ("session", "prof")
"""What the session in `profile_out` is called in Python."""
_evaluate_python = PythonEvaluator()


def _console(example: Example) -> str | None:
    shell = example.namespace.setdefault(SHELL, Shell())
    asked = [*commands(example.parsed), ("", "")]
    for (line, shown), (following, _) in pairwise(asked):
        printed = shell.run(line)
        if not fits(shown, printed):
            return f"`{line}` printed\n{printed}\nand not\n{shown}"
        if shell.status and STATUS not in (line, following):
            return f"`{line}` ended with {shell.status}:\n{printed}"
    return None


def _python(example: Example) -> str | None:
    names = example.namespace
    names.update({name: value for name, value in _NAMES.items() if name not in names})
    for name in _SESSIONS:
        if re.search(rf"\b{name}\.", example.parsed) and name not in names:
            names[name] = profiler_ext.load("profile_out")
    return _evaluate_python(example)


def _json(example: Example) -> None:
    json.loads(example.parsed)


def _yaml(example: Example) -> None:
    yaml.safe_load(example.parsed)


def _nothing(example: Example) -> None:
    """What is no code, or is run elsewhere."""


EVALUATORS: dict[str, Callable[[Example], str | None]] = {
    "console": _console,
    "python": _python,
    "json": _json,
    "yaml": _yaml,
    "sql": _nothing,
    "text": _nothing,
}


def _only_read(example: Example) -> None:
    if example.region.lexemes["language"] == "python":
        ast.parse(example.parsed)
    for line, _ in commands(example.parsed):
        check_readable(line)


def _sessions(example: Example) -> None:
    lay(example.parsed, Path.cwd())


def parse(document: Document) -> Iterable[Region]:
    """Yield the blocks of a document, and the comments that say what they work on.

    Args:
        document: a page.

    Raises:
        ValueError: A block is of no kind.
    """
    unrun: dict[int, str] = {}
    for found in _COMMENT.finditer(document.text):
        if found["what"] == "sessions":
            yield Region(found.start(), found.end(), parsed=found["words"], evaluator=_sessions)
        else:
            unrun[found.end()] = found["words"]
    for region in RawFencedCodeBlockLexer(_INFO)(document):
        language = region.lexemes["language"]
        if language not in EVALUATORS:
            raise ValueError(f"{document.path}: a block of the kind {language!r}")
        region.parsed = region.lexemes["source"]
        region.evaluator = _only_read if region.start in unrun else EVALUATORS[language]
        yield region


BOOK = Sybil([parse], path=str(ROOT))


def documents() -> list[Document]:
    """Return the pages, each with its blocks."""
    return [BOOK.parse(path) for path in PAGES]


def name(example: Example) -> str:
    """Return where a block stands.

    Args:
        example: the block.
    """
    return f"{os.path.relpath(example.path, ROOT)}:{example.line}"
