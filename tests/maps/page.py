"""What the maps share: pages, tables, paths, and the first sentence of a docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from tests.test_architecture import ROOT, Module

MADE = "<!-- Written by `make reference` from the code. -->"


def page(*parts: str) -> str:
    """Return a page of some parts, which says after the first one how it is made."""
    first, *others = parts
    return "\n\n".join((first, MADE, *others)) + "\n"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    heads = tuple(heads)
    lines = (heads, ["---"] * len(heads), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain(text: str) -> str:
    """Return text of a docstring on one line, as Markdown has it."""
    return re.sub(r":\w+:(`[^`]+`)", r"\1", " ".join(text.split()).replace("``", "`"))


def first_sentence(docstring: str) -> str:
    """Return what stands before the first empty line."""
    return plain(docstring.partition("\n\n")[0])


def owns(module: Module) -> str:
    """Return what a module says that it owns."""
    reported = first_sentence(ast.get_docstring(module.tree) or "")
    return reported.removeprefix("Owns ").rstrip(".")


def place(name: str) -> str:
    """Return the path of a module or a package, exporters by the folder it lies in."""
    path = name.replace(".", "/").replace("profiler_ext/exporters", "exporters")
    return path if (ROOT / path).is_dir() else f"{path}.py"
