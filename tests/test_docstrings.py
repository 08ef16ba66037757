"""Docstrings of the public API are complete, and what reads torch names the file it reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from profiler_ext import errors

ROOT = Path(__file__).parents[1]
ERRORS = {name for name, value in vars(errors).items() if isinstance(value, type)}
SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Attributes):$", re.M)
ELSEWHERE = re.compile(r":(?:meth|func|class):`")
TORCH_FILE = re.compile(r"torch/[\w/]+\.(?:py|cpp|h)\b")


class Documented(NamedTuple):
    """A public function or method, and the docstring of its class."""

    module: str
    name: str
    node: ast.FunctionDef
    is_method: bool
    of_class: str

    @property
    def doc(self) -> str:
        return ast.get_docstring(self.node) or ""

    @property
    def parameters(self) -> set[str]:
        given = self.node.args
        named = [arg.arg for arg in (*given.posonlyargs, *given.args)]
        is_static = any(ast.unparse(each) == "staticmethod" for each in self.node.decorator_list)
        names = {*named[self.is_method and not is_static :], *(arg.arg for arg in given.kwonlyargs)}
        more = ("*", given.vararg), ("**", given.kwarg)
        return names | {stars + arg.arg for stars, arg in more if arg is not None}

    @property
    def raised(self) -> set[str]:
        """The errors of ours that it raises by name."""
        calls = (each.exc for each in ast.walk(self.node) if isinstance(each, ast.Raise))
        return {
            call.func.id
            for call in calls
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        } & ERRORS


def section(doc: str, title: str) -> str:
    """Return the lines of a section of a docstring."""
    parts = SECTION.split(doc)
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(title, "")


def described(doc: str, title: str = "Args") -> set[str]:
    return set(re.findall(r"^    (\*{0,2}\w+):", section(doc, title), re.M))


def says_elsewhere(each: Documented) -> bool:
    """Tell whether a docstring that this one names, or that of the class, has the arguments."""
    is_of_class = each.name.endswith(".__init__") and described(each.of_class) == each.parameters
    return is_of_class or ELSEWHERE.search(each.doc.split("\n\n")[0]) is not None


def public(module: str, source: str) -> Iterator[Documented]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield Documented(module, node.name, node, False, "")
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and (
                    not each.name.startswith("_") or each.name == "__init__"
                ):
                    name = f"{node.name}.{each.name}"
                    yield Documented(module, name, each, True, ast.get_docstring(node) or "")


def sources() -> dict[str, str]:
    package = {
        path: ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "profiler_ext").rglob("*.py"))
        if "exporters" not in path.relative_to(ROOT).parts
    }
    exporters = {
        path: "profiler_ext." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "exporters").rglob("*.py"))
    }
    every = {**package, **exporters}
    return {name.removesuffix(".__init__"): path.read_text() for path, name in every.items()}


SOURCES = sources()
PUBLIC = [each for module, source in SOURCES.items() for each in public(module, source)]
OFFERED = ("profiler_ext",)


def offered() -> list[Documented]:
    """List what the package offers, with the methods of its classes."""
    by_name = {(each.module, each.name): each for each in PUBLIC}
    methods: dict[tuple[str, str], list[Documented]] = {}
    for each in PUBLIC:
        methods.setdefault((each.module, each.name.partition(".")[0]), []).append(each)
    homes = {
        (value.__module__, value.__name__)
        for room in OFFERED
        for name in import_module(room).__all__
        for value in _with_bases(getattr(import_module(room), name))
    }
    return [
        each
        for home in sorted(homes)
        for each in [by_name.get(home), *methods.get(home, [])]
        if each
    ]


def _with_bases(value: object) -> list[type]:
    ours = [each for each in getattr(value, "__mro__", [value]) if hasattr(each, "__module__")]
    return [each for each in ours if each.__module__.startswith("profiler_ext")]


def named(every: list[Documented]) -> list[str]:
    return [f"{each.module}:{each.name}" for each in every]


def test_no_argument_is_described_that_is_not_there() -> None:
    stated = [each for each in PUBLIC if described(each.doc)]
    assert named([each for each in stated if described(each.doc) - each.parameters]) == []


def test_the_public_api_describes_each_argument_and_each_error_of_ours() -> None:
    every = offered()
    assert {"SessionTables.by_line", "LastSessionMixin.annotate"} <= {each.name for each in every}
    silent = [
        each
        for each in every
        if (described(each.doc) != each.parameters or each.raised - described(each.doc, "Raises"))
        and not says_elsewhere(each)
    ]
    assert named(silent) == []


READING = [
    name
    for name, source in SOURCES.items()
    if re.match(r"profiler_ext\.torch_compat\.(?!names)", name)
    and re.search(r"^from \S+torch_compat\.names import .*_names", source, re.M)
]


@pytest.mark.parametrize("module", READING)
def test_what_reads_torch_names_the_file_that_it_stands_on(module: str) -> None:
    tree = ast.parse(SOURCES[module])
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = [ast.get_docstring(each) or "" for each in ast.walk(tree) if isinstance(each, kinds)]
    assert TORCH_FILE.search("\n".join(docs)), "say which file of torch this is of"
