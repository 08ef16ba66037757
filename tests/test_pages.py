"""What the pages name is there: files, targets of make, commands, links, stages of a graph."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from profiler_ext import cli
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.torch_compat import points
from profiler_ext.torch_compat.patches import Hook, Point, installed
from tests.compiling import fresh_torch, torch, train_once
from tests.maps.hooks import declared, observers

__all__ = ["fresh_torch"]
ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
ROOTS = (
    "profiler_ext",
    "exporters",
    "tests",
    "verification",
    "docs",
    "examples",
    "benchmarks",
    ".ci",
)
MAKEFILE = (ROOT / "Makefile").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
DIAGRAMS = ROOT / "docs" / "diagrams"
CODE = re.compile(r"^(?:    [^\n]*|```.*?^```)$|`[^`\n]+`", re.MULTILINE | re.DOTALL)

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def code(page: Path) -> str:
    """Return what is set as code in a page: names, and lines to type."""
    return "\n".join(found.group() for found in CODE.finditer(page.read_text()))


def paths(page: Path) -> Iterator[str]:
    """Yield what looks like a path of the repository; one that says NEW is yet to be written."""
    for word in re.findall(r"[\w./*-]+", code(page)):
        path = word.rstrip(".")
        if path.partition("/")[0] in ROOTS and "/" in path and "NEW" not in path:
            yield path


@every_page
def test_each_path_that_a_page_names_is_there(page: Path) -> None:
    assert [path for path in paths(page) if not any(ROOT.glob(path))] == []


@every_page
def test_each_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text())
    lost = [(file, anchor) for file, anchor in links if not leads(page, file, anchor)]
    assert lost == []


def leads(page: Path, file: str, anchor: str) -> bool:
    target = page.parent / file if file else page
    return target.exists() and (not anchor or anchor in anchors(target.read_text()))


def anchors(text: str) -> list[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings]


@every_page
def test_each_target_of_make_that_a_page_names_is_there(page: Path) -> None:
    asked = re.findall(r"(?:^ *|`|\$ )make ([a-z][\w-]*)", code(page), re.MULTILINE)
    assert [name for name in asked if not re.search(rf"^{name}:", MAKEFILE, re.MULTILINE)] == []


@every_page
def test_each_module_that_a_page_has_one_run_is_there(page: Path) -> None:
    asked = set(re.findall(r"-m (tests[\w.]*)", code(page)))
    assert [name for name in asked if importlib.util.find_spec(name) is None] == []


@every_page
def test_each_command_that_a_page_names_is_there(page: Path) -> None:
    asked = set(re.findall(r"\bprofiler-ext ([a-z][\w-]*)", code(page)))
    assert asked <= set(cli._COMMANDS)


def test_each_place_in_torch_says_what_passes_there_and_is_observed() -> None:
    places, files = dict(declared()), observers()
    assert {point for found in places.values() for point in found} == set(points.ALL)
    assert [name for name, found in places.items() if not found[0].sees] == []
    assert set(files) - {"ALL"} == set(places)


@pytest.mark.usefixtures("fresh_torch")
def test_the_stages_of_a_graph_fire_as_the_table_says() -> None:
    reported = stages()
    compiled = fired(reported)
    by_autograd = fired(reported)
    with torch._functorch.config.patch(enable_autograd_cache=False):
        fired(reported)
        by_inductor = fired(reported)
    found = zip(compiled, by_inductor, by_autograd, strict=True)
    assert dict(zip(reported, found, strict=True)) == reported


def stages() -> dict[str, tuple[bool, ...]]:
    """Return what the table says of each of torch's functions."""
    _, _, section = ARCHITECTURE.partition("\n## The stages of a graph\n")
    _, _, table = section.partition("\n\n## ")[0].partition("| --- |\n")
    rows = re.findall(r"^\| [^|]+ \| `([\w.]+)` \|.*?((?: \w+ \|){3})$", table, re.MULTILINE)
    assert rows and len(rows) == len(re.findall(r"^\|", table, re.MULTILINE))
    words = {path: re.findall(r"\w+", cells) for path, cells in rows}
    return {path: tuple(word == "yes" for word in each) for path, each in words.items()}


def fired(paths: dict[str, tuple[bool, ...]]) -> list[bool]:
    """Train once, and tell which places torch passes."""
    count = Counter[str]()

    def counted(point: Point) -> Hook:
        def observe(_: Observed) -> Observation:
            count[point.path] += 1
            yield

        return point, observe

    hooks = [counted(point) for point in points.ALL if point.path in paths]
    assert {point.path for point, _ in hooks} == set(paths)
    with installed(hooks, Guard(strict=True)):
        train_once()
    return [count[path] > 0 for path in paths]


@pytest.mark.parametrize("source", sorted(DIAGRAMS.glob("*.mmd")), ids=lambda each: each.stem)
def test_a_diagram_is_drawn_of_its_source(source: Path) -> None:
    of = f"<!-- of {sha256(source.read_bytes()).hexdigest()} -->\n"
    assert source.with_suffix(".svg").read_text().endswith(of)
