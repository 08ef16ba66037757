"""The map of the packages: what each is for, and what it may import."""

from __future__ import annotations

import tomllib
from typing import Any

from tests.maps.page import owns, page, place, table
from tests.test_architecture import ROOT, modules

_PAGE = """# Packages

Each package has one responsibility, and imports run one way: import-linter holds the contracts of
`pyproject.toml` (`make lint`). How data flows through them: [architecture.md](architecture.md)."""
_LEVELS = (
    "A package may import those on the lines below its own; those on one line are independent."
)
_WITHIN = "Those that have an order may import those below them; then the other files."


def rooms() -> str:
    """Return the page."""
    levels, *inner = (each for each in _contracts() if each["type"] == "layers")
    return page(_PAGE, _levels(levels), *map(_inner, inner), _libraries())


def _contracts() -> list[dict[str, Any]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return contracts


def _levels(contract: dict[str, Any]) -> str:
    rows = (
        (str(level), _path(each), owns(modules()[each]))
        for level, line in enumerate(contract["layers"], 1)
        for each in (f"profiler_ext.{name}" for name in line.split(" | "))
    )
    return f"{_LEVELS}\n\n{table(('level', 'package', 'what it is for'), rows)}"


def _inner(contract: dict[str, Any]) -> str:
    (outer,), order = contract["containers"], contract["layers"]
    others = [
        name.rpartition(".")[2]
        for name in modules()
        if name.rpartition(".")[0] == outer and name.rpartition(".")[2] not in order
    ]
    names = (f"{outer}.{each}" for each in (*order, *others))
    rows = ((_path(name), owns(modules()[name])) for name in names)
    heads = ("package or file", "what it is for")
    return f"## Within {_path(outer)}\n\n{_WITHIN}\n\n{table(heads, rows)}"


def _libraries() -> str:
    rows = (
        (f"`{library}`", ", ".join(map(_path, contract["source_modules"])))
        for contract in _contracts()
        if contract["type"] == "forbidden"
        for library in contract["forbidden_modules"]
    )
    text = "A recording is read, attributed and exported without torch."
    return f"## Libraries\n\n{text}\n\n{table(('library', 'who does not import it'), rows)}"


def _path(name: str) -> str:
    return f"`{place(name)}`"
