"""Tables that sum device time over the profiled steps: by line, module, op, phase, link, mechanism.

Gaps are rows as well, so every table's total is the measured device time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Unpack

import numpy as np

from profiler_ext.errors import UsageError
from profiler_ext.exporters.tables import schema
from profiler_ext.exporters.tables.rows import roofline_columns_by_key
from profiler_ext.exporters.tables.selection import PHASES, Filters, Selection
from profiler_ext.exporters.tables.table import INT, TEXT, AnyColumn, Table, first_known, gather
from profiler_ext.records import lineage, share_sums
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.events import Codes, Interned, Ints, first_rows, numbered
from profiler_ext.rooflines.peaks import PEAKS, Peak

NO_COLUMNS: Mapping[str, AnyColumn] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Keys:
    """The rows of a summing table."""

    table: Table  # one row per key
    of_share: Ints  # each share's row of ``table``

    def select(self, analysis: Analysis, selection: Selection) -> share_sums.KeyedShares:
        """Return the filtered shares, each with its row."""
        rows = np.flatnonzero(selection.shares(analysis, selection.profiled(analysis)))
        return share_sums.KeyedShares(analysis, rows, self.of_share[rows], len(self.table))


def line_keys(analysis: Analysis, view: str) -> Keys:
    """Return source lines: the model's, or the user's own.

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
    """Return one column of the places: ATen ops, mechanisms, links to forward."""
    values = ((getattr(place, column),) for place in analysis.places)
    return _keys_with_gaps(analysis, (column,), (), values)


def phase_keys(analysis: Analysis) -> Keys:
    """Return phases."""
    phases = _frame_of(("phase",), [(place.phase,) for place in analysis.places])
    return _keys_of_places(analysis, phases, ["phase"])


def kernel_keys(analysis: Analysis) -> Keys:
    """Return kernels: Inductor's name or the event's, the device's name, and the kind."""
    columns = kernel_columns(analysis)
    codes = [column.codes for column in columns.values()]
    return launch_keys(analysis, codes, lambda rows: texts_at(columns, rows), list(columns))


def kernel_columns(analysis: Analysis) -> dict[str, Interned]:
    """Return what identifies each launch's kernel."""
    launches = analysis.launches
    return {"kernel": launches.kernel_or_name, "name": launches.name, "kind": launches.kind}


def texts_at(columns: Mapping[str, Interned], rows: Ints) -> dict[str, AnyColumn]:
    """Return some rows of columns; empty texts are absent."""
    return {
        name: gather([each or None for each in column.strings], column.codes[rows], TEXT)
        for name, column in columns.items()
    }


def launch_keys(
    analysis: Analysis,
    codes: Sequence[Ints | Codes],
    columns_at: Callable[[Ints], dict[str, AnyColumn]],
    identity: list[str],
) -> Keys:
    """Return keys of whole launches; launches equal in all ``codes`` share a key."""
    of_launch = numbered(codes)
    merged, of_row = _merged(schema.frame(columns_at(first_rows(of_launch))), identity)
    return Keys(merged, of_row[of_launch][analysis.shares.launch])


def _model_line(place: Place) -> tuple[object, ...]:
    return place.file, place.line, place.function, place.code


def _user_line(place: Place) -> tuple[object, ...]:
    position = (place.user_file, place.user_line)
    unknown_frame = lineage.Frame("", 0, "")
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


def _keys_of_places(analysis: Analysis, names: Table, identity: list[str]) -> Keys:
    merged, of_place = _merged(names, identity)
    return Keys(merged, of_place[analysis.shares.place])


def _frame_of(names: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> Table:
    every = np.arange(len(rows))
    return schema.frame(
        {
            name: gather([row[at] for row in rows], every, schema.COLUMNS[name].dtype)
            for at, name in enumerate(names)
        }
    )


def _merged(names: Table, identity: list[str]) -> tuple[Table, Ints]:
    number, firsts = names.groups(identity)
    # Details (a line's function and text) are the first known.
    details = {
        name: first_known(names[name], number, len(firsts))
        for name in names.columns
        if name not in identity
    }
    return names.take(firsts).with_columns(details), number


def by_line(
    analysis: Analysis,
    view: str = "model",
    *,
    peaks: Mapping[str, Peak] = PEAKS,
    **filters: Unpack[Filters],
) -> Table:
    """Return device time by source line, longest first; ``gap`` says why a row has no line.

    ``view`` is ``model`` for the innermost line of the model, a modelling library's included, or
    ``user`` for the innermost line under the user's own roots.
    """
    return with_rooflines(analysis, line_keys(analysis, view), Selection(**filters), peaks)


def by_module(
    analysis: Analysis,
    depth: int | None = None,
    *,
    peaks: Mapping[str, Peak] = PEAKS,
    **filters: Unpack[Filters],
) -> Table:
    """Return device time by module, longest first, without submodules' time.

    ``depth`` cuts paths to so many parts, so that submodules' time is included: at 2,
    ``layers.7.mlp.up`` counts for ``layers.7``; 0 is the whole model.
    """
    return with_rooflines(analysis, module_keys(analysis, depth), Selection(**filters), peaks)


def by_op(analysis: Analysis, **filters: Unpack[Filters]) -> Table:
    """Return device time by ATen op, longest first; ``gap`` says why a row has no op."""
    return _sums(analysis, text_keys(analysis, "aten_op"), Selection(**filters))


def by_phase(analysis: Analysis, **filters: Unpack[Filters]) -> Table:
    """Return device time by phase, longest first."""
    return _sums(analysis, phase_keys(analysis), Selection(**filters))


def by_link(analysis: Analysis, **filters: Unpack[Filters]) -> Table:
    """Return device time by the rule that matched backward work to its forward op, longest first.

    ``seq_nr`` and the like are rules that found the forward node, ``not_linked`` is where none did.
    ``sum_of_gradients``, ``recomputed_forward``, ``mutation`` and ``hook`` have none by nature;
    absent is work that differentiates nothing.
    """
    return _sums(analysis, text_keys(analysis, "forward_evidence"), Selection(**filters))


def by_mechanism(analysis: Analysis, **filters: Unpack[Filters]) -> Table:
    """Return device time by how source lines were found, longest first; absent is eager work."""
    return _sums(analysis, text_keys(analysis, "mechanism"), Selection(**filters))


def with_rooflines(
    analysis: Analysis,
    keys: Keys,
    selection: Selection,
    peaks: Mapping[str, Peak],
    more: Mapping[str, AnyColumn] = NO_COLUMNS,
) -> Table:
    """Return the sums with roofline columns, which are split as time is.

    ``est_bytes``, ``est_flops``, ``roofline_ns`` and ``could_save_ns`` sum the parts where they are
    known; rates cover the same parts.
    """
    achieved = roofline_columns_by_key(keys.select(analysis, selection), peaks)
    return _sums(analysis, keys, selection, {**more, **achieved})


def _sums(
    analysis: Analysis,
    keys: Keys,
    selection: Selection,
    more: Mapping[str, AnyColumn] = NO_COLUMNS,
) -> Table:
    shares = keys.select(analysis, selection)
    phases = shares.phases_ns()
    count, inclusive = shares.whole_launches()
    duration = phases.sum(axis=1)
    steps = selection.count_steps(analysis)
    sums = schema.frame(
        {
            "launches": schema.whole(count),
            "duration_ns": schema.whole(duration),
            **{name: schema.whole(phases[:, at]) for at, name in enumerate(PHASES)},
            "inclusive_ns": schema.whole(inclusive),
            "fraction": schema.ratio(duration, int(duration.sum())),
            "steps": schema.repeated(steps, len(keys.table), INT),
            "per_step_ns": schema.ratio(duration, steps),
            **more,
        }
    )
    table = keys.table.with_columns(sums.by_name).take(count > 0)
    return table.longest_first(keys.table.columns)
