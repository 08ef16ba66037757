"""The tables of symbols: one JSON file for each torch that was looked at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from profiler_ext.torch_compat import names, points
from profiler_ext.torch_compat.behaviour import Build, build_of
from profiler_ext.torch_compat.patches import Point
from profiler_ext.torch_compat.private import Name
from profiler_ext.torch_compat.shapes import Shape, ShapeOf

FOLDER = Path(__file__).parents[1] / "fixtures" / "symbols"
COMMAND = "python -m tests.symbols"
EVERY: tuple[Point | Name, ...] = (*points.ALL, *names.ALL)
"""Every name that torch_compat wraps, reads or calls."""


class Table:
    """What one torch has of the names that torch_compat stands on."""

    def __init__(self, shapes: Mapping[str, Shape], build: Build):
        self.shapes = shapes
        self.build = build

    def shape(self, module: str, path: str) -> Shape:
        """Return a name's shape; a ``LookupError`` says that this torch has it not."""
        return self.shapes[f"{module}:{path}"]

    def problems(self) -> list[str]:
        """Return what the checks that run at install say of this torch."""
        wrapped = (point.problem(self.shape) for point in points.ALL)
        read = (name.problem(self.shape, self.build) for name in names.ALL)
        return [problem for problem in (*wrapped, *read) if problem is not None]


def table_of(shape_of: ShapeOf, build: Build) -> Table:
    """Return the table that shapes make; what is not there is left out."""
    every = {key: shape for point in EVERY for key, shape in _entry(point, shape_of)}
    return Table(every, build)


def _entry(point: Point | Name, shape_of: ShapeOf) -> list[tuple[str, Shape]]:
    try:
        return [(f"{point.module}:{point.path}", shape_of(point.module, point.path))]
    except LookupError:
        return []


def read_table(version: str) -> Table:
    """Return a recorded table."""
    recorded = json.loads((FOLDER / f"torch-{version}.json").read_text())["names"]
    shapes = {key: None if found is None else tuple(found) for key, found in recorded.items()}
    return Table(shapes, build_of(version))


def table_text(version: str, table: Table) -> str:
    """Return a table as the text of its file."""
    lines = [f"  {json.dumps(key)}: {json.dumps(table.shapes[key])}" for key in table.shapes]
    head = json.dumps({"torch": version, "forward_node_of": f"{COMMAND} {version}"})[:-1]
    return head + ', "names": {\n' + ",\n".join(sorted(lines)) + "\n}}\n"
