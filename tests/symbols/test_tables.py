from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from profiler_ext.torch_compat import behaviour, names
from profiler_ext.torch_compat.behaviour import Build, build_of
from profiler_ext.torch_compat.shapes import Shape, live_shape
from tests.symbols.reading import Sources
from tests.symbols.tables import EVERY, FOLDER, Table, read_table, table_of, table_text

with warnings.catch_warnings():  # torch's own modules warn of what they use of each other
    warnings.simplefilter("ignore")
    import torch
    import torch._inductor.compile_fx

VERSIONS = ["2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0"]
HERE = build_of(torch.__version__)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_recorded_torch_has_every_name_in_its_shape(version):
    assert read_table(version).problems() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_is_written_as_it_is_read(version):
    text = (FOLDER / f"torch-{version}.json").read_text()
    assert table_text(version, read_table(version)) == text


def test_what_is_read_from_the_source_of_this_torch_is_what_it_has():
    place = Path(torch.__file__).parents[1]
    assert of_this_build(table_of(Sources(place).shape, HERE)) == table_of(live_shape, HERE).shapes


def test_the_table_of_this_torch_is_what_it_has():
    version = torch.__version__.partition("+")[0]
    if version not in VERSIONS:
        pytest.skip(f"torch {version} has no table; python -m tests.symbols makes one")
    assert of_this_build(read_table(version)) == table_of(live_shape, HERE).shapes


def of_this_build(table: Table) -> dict[str, Shape]:
    """The shapes of a table, without names that builds for the CPU alone lack."""
    if torch.version.cuda or torch.version.hip:
        return dict(table.shapes)
    of_gpu = {f"{name.module}:{name.path}" for name in names.ALL if name.is_of_gpu}
    return {key: shape for key, shape in table.shapes.items() if key not in of_gpu}


@pytest.mark.parametrize("point", EVERY, ids=lambda point: point.path)
def test_a_name_that_a_torch_renamed_is_a_problem(point):
    shapes = dict(read_table("2.13.0").shapes)
    shapes[f"{point.module}:{point.path}_renamed"] = shapes.pop(f"{point.module}:{point.path}")
    assert Table(shapes, Build((2, 13))).problems() == [f"{point.module}.{point.path} is not there"]


def test_a_parameter_that_a_torch_renamed_is_a_problem():
    key = "torch._inductor.output_code:CompiledFxGraph.post_compile"
    shapes = read_table("2.15.0").shapes | {key: ("self", "inputs", "constants", "graph_kwargs")}
    assert Table(shapes, Build((2, 15))).problems() == [
        "torch._inductor.output_code.CompiledFxGraph.post_compile takes "
        "('self', 'inputs', 'constants', 'graph_kwargs'), but not ('example_inputs',)"
    ]


def moved(shapes: dict[str, Shape], key: str) -> dict[str, Shape]:
    """A torch that keeps a name elsewhere: in another module, under another spelling."""
    module, _, path = key.partition(":")
    return {each: shape for each, shape in shapes.items() if each != key} | {
        f"{module}_impl:{path}": shapes[key],
        f"{module}:_{path}": shapes[key],
    }


def test_a_nightly_that_moved_names_is_reported_name_by_name():
    shapes = dict(read_table("2.15.0").shapes)
    gone = sorted(f"{name.module}:{name.path}" for name in names.ALL)[::7]
    for key in gone:
        shapes = moved(shapes, key)
    expected = {f"{key.replace(':', '.', 1)} is not there" for key in gone}
    assert set(Table(shapes, Build((2, 16))).problems()) == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("each", behaviour.ALL, ids=lambda each: each.name)
def test_each_recorded_torch_shows_the_behaviours_that_its_version_has(each, version):
    assert each.shows(read_table(version).shape) is each.is_in(build_of(version))
