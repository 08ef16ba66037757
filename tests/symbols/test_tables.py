from __future__ import annotations

import ast
import warnings
from pathlib import Path

import pytest

import profiler_ext
from profiler_ext.torch_compat.shapes import live_shape
from tests.symbols.reading import Sources
from tests.symbols.tables import EVERY, FOLDER, Table, read_table, table_of, table_text

with warnings.catch_warnings():  # torch's own modules warn of what they use of each other
    warnings.simplefilter("ignore")
    import torch
    import torch._inductor.compile_fx

VERSIONS = ["2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0"]
SOURCES = Path(profiler_ext.__file__).parent / "torch_compat"


@pytest.mark.parametrize("version", VERSIONS)
def test_each_recorded_torch_has_every_name_in_its_shape(version):
    assert read_table(version).problems() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_is_written_as_it_is_read(version):
    text = (FOLDER / f"torch-{version}.json").read_text()
    assert table_text(version, read_table(version)) == text


def test_what_is_read_from_the_source_of_this_torch_is_what_it_has():
    place = Path(torch.__file__).parents[1]
    assert table_of(Sources(place).shape).shapes == table_of(live_shape).shapes


def test_the_table_of_this_torch_is_what_it_has():
    version = torch.__version__.partition("+")[0]
    if version not in VERSIONS:
        pytest.skip(f"torch {version} has no table; python -m tests.symbols makes one")
    assert read_table(version).shapes == table_of(live_shape).shapes


@pytest.mark.parametrize("point", EVERY, ids=lambda point: point.path)
def test_a_name_that_a_torch_renamed_is_a_problem(point):
    shapes = dict(read_table("2.13.0").shapes)
    shapes[f"{point.module}:{point.path}_renamed"] = shapes.pop(f"{point.module}:{point.path}")
    assert Table(shapes).problems() == [f"{point.module}.{point.path} is not there"]


def test_a_parameter_that_a_torch_renamed_is_a_problem():
    key = "torch._inductor.output_code:CompiledFxGraph.post_compile"
    shapes = read_table("2.15.0").shapes | {key: ("self", "inputs", "constants", "graph_kwargs")}
    assert Table(shapes).problems() == [
        "torch._inductor.output_code.CompiledFxGraph.post_compile takes "
        "('self', 'inputs', 'constants', 'graph_kwargs'), expected "
        "('self', 'example_inputs', 'constants', 'graph_kwargs')"
    ]


def test_each_private_name_that_torch_compat_imports_is_in_the_tables():
    known = {f"{p.module}:{p.path.partition('.')[0]}" for p in EVERY} | {p.module for p in EVERY}
    assert {name for name in imported() if name not in known} == set()


def imported() -> set[str]:
    """What torch_compat imports from private modules of torch: ``module:name``, or a module."""
    trees = [ast.parse(path.read_text()) for path in SOURCES.glob("*.py")]
    froms = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    private = [n for n in froms if n.module.startswith("torch.") and "._" in n.module]
    return {_name(node.module, alias.name) for node in private for alias in node.names}


def _name(module: str, name: str) -> str:
    known_modules = {point.module for point in EVERY}
    return f"{module}.{name}" if f"{module}.{name}" in known_modules else f"{module}:{name}"
