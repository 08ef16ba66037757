"""Owns what tells the rows of a summing table apart, and the row of each share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from profiler_ext.errors import UsageError
from profiler_ext.exporters.tables.arrays import TEXT, frame, gather
from profiler_ext.exporters.tables.schema import COLUMNS
from profiler_ext.records import Analysis, Codes, Frame, Interned, Ints, Place, first_rows, numbered


@dataclass(frozen=True, slots=True)
class Keys:
    """The rows of a summing table.

    Attributes:
        table: what each row is called; one row a key.
        of_share: row of ``table`` that each share belongs to.
    """

    table: pd.DataFrame
    of_share: Ints


def line_keys(analysis: Analysis, view: str) -> Keys:
    """Return source lines: the model's, or the user's own.

    Args:
        analysis: an analysis.
        view: ``model`` or ``user``.

    Raises:
        UsageError: There is no such view.
    """
    if view not in ("model", "user"):
        raise UsageError(f"there is no view {view!r} of lines; ask for 'model' or 'user'")
    line_of = _model_line if view == "model" else _user_line
    values = map(line_of, analysis.places)
    return _keys_with_gaps(analysis, ("file", "line"), ("function", "code"), values)


def module_keys(analysis: Analysis, depth: int | None) -> Keys:
    """Return module paths, cut to ``depth`` parts.

    Args:
        analysis: an analysis.
        depth: so many names of a path at most; ``None`` for all.

    Raises:
        UsageError: The depth is negative.
    """
    if depth is not None and depth < 0:
        raise UsageError(f"the depth of modules is {depth}; ask for 0 or more")
    classes = _module_classes(analysis)
    paths = [_cut(place.module, depth) for place in analysis.places]
    values = ((path, None if path is None else classes.get(path)) for path in paths)
    return _keys_with_gaps(analysis, ("module",), ("module_class",), values)


def text_keys(analysis: Analysis, column: str) -> Keys:
    """Return what the places say in one column: ATen ops, mechanisms, links to the forward.

    Args:
        analysis: an analysis.
        column: the attribute of a place.
    """
    values = ((getattr(place, column),) for place in analysis.places)
    return _keys_with_gaps(analysis, (column,), (), values)


def phase_keys(analysis: Analysis) -> Keys:
    """Return phases."""
    phases = _frame_of(("phase",), [(place.phase,) for place in analysis.places])
    return _keys_of_places(analysis, phases, ["phase"])


def kernel_keys(analysis: Analysis) -> Keys:
    """Return kernels: Inductor's name, or the event's where Inductor launched nothing; its own."""
    columns = kernel_columns(analysis)
    codes = [column.codes for column in columns.values()]
    return launch_keys(analysis, codes, lambda rows: texts_at(columns, rows), list(columns))


def kernel_columns(analysis: Analysis) -> dict[str, Interned]:
    """Return what tells the kernels of launches apart, one row for each launch."""
    launches = analysis.launches
    return {"kernel": _kernel_or_name(analysis), "name": launches.name, "kind": launches.kind}


def texts_at(columns: Mapping[str, Interned], rows: Ints) -> dict[str, ExtensionArray]:
    """Return some rows of columns; an empty text is absent.

    Args:
        columns: the columns.
        rows: which.
    """
    return {
        name: gather([each or None for each in column.strings], column.codes[rows], TEXT)
        for name, column in columns.items()
    }


def launch_keys(
    analysis: Analysis,
    codes: Sequence[Ints | Codes],
    columns_at: Callable[[Ints], dict[str, ExtensionArray]],
    identity: list[str],
) -> Keys:
    """Return keys of whole launches.

    Args:
        analysis: what attribution found.
        codes: columns of numbers; launches that are alike in all of them have one key.
        columns_at: returns what some launches are called.
        identity: of these the columns that tell keys apart.
    """
    of_launch = numbered(codes)
    merged, of_row = _merged(frame(columns_at(first_rows(of_launch))), identity)
    return Keys(merged, of_row[of_launch][analysis.shares.launch])


def _model_line(place: Place) -> tuple[object, ...]:
    return place.file, place.line, place.function, place.code


def _user_line(place: Place) -> tuple[object, ...]:
    position = (place.user_file, place.user_line)
    unknown_frame = Frame("", 0, "")
    frames = (each for each in reversed(place.stack) if (each.file, each.line) == position)
    frame_there = next(frames, unknown_frame)
    return *position, frame_there.function or None, frame_there.code


def _cut(path: str | None, depth: int | None) -> str | None:
    if path is None or depth is None:
        return path
    return ".".join(path.split(".")[:depth])


def _module_classes(analysis: Analysis) -> dict[str, str]:
    nodes = (node for graph in analysis.recording.graphs for node in graph.nodes)
    classes = {each.path: each.class_name for node in nodes for each in node.lineage.modules}
    placed = ((place.module, place.module_class) for place in analysis.places)
    return classes | {path: name for path, name in placed if path is not None and name is not None}


def _kernel_or_name(analysis: Analysis) -> Interned:
    kernel, name = analysis.launches.kernel, analysis.launches.name
    codes = np.where(kernel.where(""), name.codes + len(kernel.strings), kernel.codes)
    return Interned(codes.astype(np.int32), (*kernel.strings, *name.strings))


def _keys_with_gaps(
    analysis: Analysis,
    identity: tuple[str, ...],
    details: tuple[str, ...],
    values: Iterable[tuple[object, ...]],
) -> Keys:
    pairs = zip(values, analysis.places, strict=True)
    rows = [(*value, place.gap if value[0] is None else None) for value, place in pairs]
    names = _frame_of((*identity, *details, "gap"), rows)
    return _keys_of_places(analysis, names, [*identity, "gap"])


def _keys_of_places(analysis: Analysis, names: pd.DataFrame, identity: list[str]) -> Keys:
    merged, of_place = _merged(names, identity)
    return Keys(merged, of_place[analysis.shares.place])


def _frame_of(names: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> pd.DataFrame:
    every = np.arange(len(rows))
    return frame(
        {
            name: gather([row[at] for row in rows], every, COLUMNS[name].dtype)
            for at, name in enumerate(names)
        }
    )


def _merged(names: pd.DataFrame, identity: list[str]) -> tuple[pd.DataFrame, Ints]:
    groups = names.groupby(identity, dropna=False, sort=False)
    number = groups.ngroup().to_numpy().astype(np.int64)
    if len(identity) == len(names.columns):
        return names.drop_duplicates(identity, ignore_index=True), number
    # What does not tell rows apart (a line's function and text) is the first that is known.
    return groups.first().reset_index()[list(names.columns)], number
