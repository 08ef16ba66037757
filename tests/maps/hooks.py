"""The map of the hooks: what passes each place in torch, and what is lost without it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from profiler_ext.torch_compat import names, points
from profiler_ext.torch_compat.patches import Point
from profiler_ext.torch_compat.private import Name
from tests.maps.page import page, place, table
from tests.symbols.tables import FOLDER, read_table
from tests.test_architecture import modules

_HOOKS = """# Hooks

What capture observes in torch, each place declared once in `profiler_ext/torch_compat/points.py`:
the function, the parameters that are used, what passes there, what is lost without it. Nothing is
imported for them: hooks in Dynamo are installed when the program imports it, all others with
Inductor, or when Dynamo passes on its first graph; a profile has all installed before it begins.
Capture checks all of them first; if one is missing, or lacks a parameter that is used, capture
disables itself and says so. Places that only report compiles may be missing: the session then has
the gap `private_name`. `profiler-ext doctor` lists them for the installed torch; for others
`tests/fixtures/symbols` has tables: torch {torchs}
have every place below, and older ones were not checked. Every observation is called through
`profiler_ext/isolation/guard.py`, which changes neither arguments nor results.

[Architecture](architecture.md#the-stages-of-a-graph) shows which of them torch passes if a cache
answers."""


def hooks() -> str:
    """Return the page."""
    return page(_HOOKS.format(torchs=_torchs()), _places(), _private_names())


def _torchs() -> str:
    """The recorded torchs that have every place."""
    found = sorted((path.stem.removeprefix("torch-") for path in FOLDER.iterdir()), key=_numbers)
    *others, last = (each.rpartition(".")[0] for each in found if _has_all(each))
    return f"{', '.join(others)} and {last}"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def _has_all(version: str) -> bool:
    return not any(point.problem(read_table(version).shape) for point in points.ALL)


def _places() -> str:
    files = observers()
    rows = (_row(found, files[name]) for name, found in declared())
    heads = ("place", "what passes there", "lost without it", "observed by")
    return f"## Places\n\n{table(heads, rows)}"


def declared() -> Iterator[tuple[str, tuple[Point, ...]]]:
    """Yield the points by the names that they have here; several modules may have one function."""
    for name, value in vars(points).items():
        found = value if isinstance(value, tuple) else (value,)
        if name != "ALL" and isinstance(found[0], Point):
            yield name, found


def _row(found: tuple[Point, ...], files: Iterable[str]) -> tuple[str, ...]:
    first = found[0]
    relied = [f"`{name}`" for name in first.parameters if name not in ("self", "cls")]
    modules = ", ".join(f"`{point.module}`" for point in found)
    where = f"`{first.path}` of {modules}" + (f"; takes {', '.join(relied)}" if relied else "")
    return where, first.sees, first.purpose, ", ".join(f"`{file}`" for file in sorted(files))


def observers() -> Mapping[str, set[str]]:
    """Return the files that put an observation at each point."""
    found = defaultdict[str, set[str]](set)
    for name, module in modules().items():
        for each in (each for node in module.nodes for each in _hooked(node)):
            if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "points":
                found[each.attr].add(place(name))
    return found


def _hooked(node: ast.AST) -> list[ast.expr]:
    """What stands where a point does: in a pair with its observation, a loop of such, a patch."""
    if isinstance(node, ast.Tuple):
        return node.elts[:1]
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "Patch":
        return node.args[:1]
    return [node.iter] if isinstance(node, ast.comprehension) else []


def _private_names() -> str:
    lost = defaultdict[str, list[Name]](list)
    for name in names.ALL:
        lost[name.purpose].append(name)
    rows = ((purpose, ", ".join(map(_private_name, each))) for purpose, each in lost.items())
    text = (
        "Read or called, and declared in `profiler_ext/torch_compat/names`. One that is gone "
        "raises where it is read and is the gap `private_name`; without those in bold capture "
        "does not begin."
    )
    return f"## Private names\n\n{text}\n\n{table(('lost without them', 'names'), rows)}"


def _private_name(name: Name) -> str:
    at = name.comes_with
    bounds = [f"since {_version(at.since)}"] if at and at.since else []
    bounds += [f"until {_version(at.until)}"] if at and at.until else []
    shown = f"`{name.path}`" + (f" ({', '.join(bounds)})" if bounds else "")
    return f"**{shown}**" if name.is_vital else shown


def _version(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
