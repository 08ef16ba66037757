"""A side of a comparison.

Its runs, with the parts of all their steps, file names and launch shapes.

So a file is the same in two checkouts, on two machines and in two environments, and a torch that is
run from its sources is called as an installed one. Where two files of a run would be called the
same, each keeps its whole path.

Inductor tries a few sizes when it compiles a kernel, and keeps what was fastest. So one program can
have one kernel launched otherwise wherever it was recompiled, and its time differs by that.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import numpy as np

from profiler_ext.comparison.matching import Kernel
from profiler_ext.comparison.parts import (
    Parts,
    join,
    parts_of_compiles,
    parts_of_ledger,
    parts_of_steps,
)
from profiler_ext.comparison.records import Run
from profiler_ext.comparison.significance import Sample
from profiler_ext.errors import UsageError
from profiler_ext.kineto.launch_shapes import launch_shapes
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Ints
from profiler_ext.records.lineage import Frame
from profiler_ext.records.recording import Cell, Settings

_PACKAGES = ("torch", "triton")


def file_names(paths: Iterable[str], settings: Settings) -> dict[str, str]:
    """Return what each path is called."""
    roots = (*settings.user_roots, *map(_above_package, settings.library_roots))
    longest_first = sorted({root.rstrip("/") + "/" for root in roots}, key=len, reverse=True)
    short = {path: _below(path, longest_first) for path in dict.fromkeys(paths)}
    name_counts: dict[str, int] = {}
    for name in short.values():
        name_counts[name] = name_counts.get(name, 0) + 1
    return {path: name if name_counts[name] == 1 else path for path, name in short.items()}


def _above_package(root: str) -> str:
    """Return a root, of a package that is one by itself the folder above it."""
    path = PurePath(root)
    return str(path.parent) if path.name in _PACKAGES else root


def _below(path: str, roots: list[str]) -> str:
    root = next((root for root in roots if path.startswith(root)), "")
    return path[len(root) :]


Shape = tuple[str, str]
"""Grid and block, ``1024`` or ``64x4`` each."""


def shapes_of(analyses: Iterable[Analysis]) -> Mapping[Kernel, Shape]:
    """Return how each kernel was launched whose launches are alike."""
    every: dict[Kernel, set[Shape]] = {}
    for analysis in analyses:
        for kernel, shape in _distinct(analysis):
            every.setdefault(kernel, set()).add(shape)
    alike = ((kernel, own) for kernel, own in every.items() if len(own) == 1)
    return {kernel: shape for kernel, (shape,) in alike if all(shape)}


def _distinct(analysis: Analysis) -> Iterable[tuple[Kernel, Shape]]:
    launches, kernel = analysis.launches, analysis.launches.kernel_or_name
    shapes = launch_shapes(analysis.recording.trace, launches.event)
    columns = np.column_stack(
        (kernel.codes, launches.kind.codes, shapes.grid.codes, shapes.block.codes)
    )
    for name, kind, grid, block in np.unique(columns, axis=0).tolist():
        named = kernel.strings[name] or None, launches.kind.strings[kind]
        sizes = shapes.grid.strings[grid], shapes.block.strings[block]
        yield named, (_short(sizes[0]), _short(sizes[1]))


def _short(size: str) -> str:
    """Return a size without the dimensions at its end that are 1."""
    while size.endswith("x1"):
        size = size.removesuffix("x1")
    return size


@dataclass(frozen=True, slots=True)
class RunOfRanks:
    """A run to be compared: what attribution found on each of its ranks, and its name."""

    name: str
    analyses: tuple[Analysis, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison.

    Attributes:
        runs: its runs.
        run_of_step: for each step the row of its run; a step of several ranks is one.
        ranks_of_step: of how many ranks each step is the sum.
        parts: what the wall time of the steps is of; it adds up to the ledger.
        ledger: the ledger.
        compiles: what each run waited for compiling; its steps are the runs.
        lines: all lines that the recordings tell, by file and number.
        paths: the path of each file, by what it is called; of the run that was first.
        versions: files of which its runs tell different texts of one line.
        cells: the text of each cell of a notebook that has time, by what it is called; a recording
            knows the cells that ran before it, too.
        on_cpu: no launch ran on a device of its own.
        shapes: how each kernel was launched, where its launches are alike.
        analyses_of_runs: for each run what attribution found, one for each rank.
    """

    runs: tuple[Run, ...]
    run_of_step: Ints
    ranks_of_step: Ints
    parts: Parts
    ledger: Parts
    compiles: Parts
    lines: Mapping[tuple[str, int], Frame]
    paths: Mapping[str, str]
    versions: tuple[str, ...] = ()
    cells: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    on_cpu: bool = False
    shapes: Mapping[Kernel, Shape] = field(default_factory=dict)
    analyses_of_runs: tuple[tuple[Analysis, ...], ...] = ()

    @property
    def analyses(self) -> tuple[Analysis, ...]:
        """What attribution found, of all runs and ranks."""
        return tuple(analysis for run in self.analyses_of_runs for analysis in run)

    @property
    def steps(self) -> int:
        """Over how many steps its times are summed, each rank's for itself."""
        return int(self.ranks_of_step.sum())

    def sample(self, sums: Ints) -> Sample:
        """Return times of its steps, a column a row of a table, to be judged."""
        return Sample(sums, self.ranks_of_step, self.run_of_step, self.on_cpu)


def side(runs: Sequence[RunOfRanks]) -> Side:
    """Return a side.

    Raises:
        UsageError: There is no run, or one has no step.
    """
    _check(runs)
    every = [_AlignedRun(run) for run in runs]
    analyses = [analysis for run in runs for analysis in run.analyses]
    ends = np.cumsum([each.steps for each in every]).tolist()
    started = [(each, end - each.steps) for each, end in zip(every, ends, strict=True)]
    lines, versions = _recorded_lines(every)
    parts = join([part for each, start in started for part in each.parts(start)])
    timed = {subject.file for subject in parts.subjects}
    cells = (cell for each in reversed(every) for cell in each.cells)
    return Side(
        runs=tuple(each.to_run() for each in every),
        run_of_step=np.repeat(np.arange(len(every)), [each.steps for each in every]),
        ranks_of_step=np.concatenate([each.ranks_of_step for each in every]),
        parts=parts,
        ledger=join([part for each, start in started for part in each.ledger(start)]),
        compiles=join([part for row, each in enumerate(every) for part in each.compiles(row)]),
        lines=lines,
        paths=dict(ChainMap(*(each.paths for each in every))),
        versions=versions,
        cells={cell.name: cell.lines for cell in cells if cell.name in timed},
        on_cpu=all(map(_is_on_cpu, analyses)),
        shapes=shapes_of(analyses),
        analyses_of_runs=tuple(run.analyses for run in runs),
    )


def _recorded_lines(
    every: Iterable[_AlignedRun],
) -> tuple[dict[tuple[str, int], Frame], tuple[str, ...]]:
    """Return the lines that runs tell, and files of which they tell different texts of one."""
    known: dict[tuple[str, int], Frame] = {}
    versions: set[str] = set()
    for own in (each.lines for each in every):
        both = own.keys() & known.keys()
        versions |= {key[0] for key in both if _has_conflicting_text(own[key], known[key])}
        known = own | known
    return known, tuple(sorted(versions))


def _is_on_cpu(analysis: Analysis) -> bool:
    return bool(np.ma.getmaskarray(analysis.launches.stream).all())


def _check(runs: Sequence[RunOfRanks]) -> None:
    if not runs:
        raise UsageError("there is no run to compare; give at least one session on each side")
    for run in runs:
        if not any(analysis.steps for analysis in run.analyses):
            raise UsageError(
                f"{run.name} has no profiled step, so there is no time of a step to compare; "
                "record one with `profiler-ext run`, or call step() of the profile"
            )


def _has_conflicting_text(one: Frame, other: Frame) -> bool:
    return bool(one.code and other.code and one.code.split() != other.code.split())


class _AlignedRun:
    """A run with the steps of its ranks laid over each other by their numbers."""

    def __init__(self, run: RunOfRanks) -> None:
        self.run = run
        numbers = [np.array([s.number for s in a.steps], np.int64) for a in run.analyses]
        self._numbers, of_step = np.unique(np.concatenate(numbers), return_inverse=True)
        self.steps = len(self._numbers)
        self.ranks_of_step = np.bincount(of_step, minlength=self.steps).astype(np.int64)
        self._display_names = [_names(analysis) for analysis in run.analyses]

    def to_run(self) -> Run:
        first = self.run.analyses[0].recording
        devices = (name for analysis in self.run.analyses for name in analysis.device_names)
        return Run(
            name=self.run.name,
            command=first.settings.command,
            torch_version=first.settings.torch_version,
            devices=tuple(dict.fromkeys(devices)),
            ranks=tuple(a.recording.settings.rank for a in self.run.analyses),
            steps=self.steps,
        )

    def parts(self, start: int) -> Iterator[tuple[Parts, Ints]]:
        for analysis, display_names in zip(self.run.analyses, self._display_names, strict=True):
            yield parts_of_steps(analysis, display_names), start + self._rows(analysis)

    def ledger(self, start: int) -> Iterator[tuple[Parts, Ints]]:
        for analysis, display_names in zip(self.run.analyses, self._display_names, strict=True):
            yield parts_of_ledger(analysis, display_names), start + self._rows(analysis)

    def compiles(self, row: int) -> Iterator[tuple[Parts, Ints]]:
        for analysis, display_names in zip(self.run.analyses, self._display_names, strict=True):
            yield parts_of_compiles(analysis, display_names), np.array([row])

    @property
    def lines(self) -> dict[tuple[str, int], Frame]:
        result: dict[tuple[str, int], Frame] = {}
        for analysis, display_names in zip(self.run.analyses, self._display_names, strict=True):
            for frame in dict.fromkeys(_frames(analysis)):
                key = display_names[frame.file], frame.line
                if key not in result or result[key].code is None:
                    result[key] = frame
        return result

    @property
    def cells(self) -> Iterable[Cell]:
        return (cell for each in self.run.analyses for cell in each.recording.cells)

    @property
    def paths(self) -> dict[str, str]:
        return {
            name: path
            for display_names in self._display_names
            for path, name in display_names.items()
        }

    def _rows(self, analysis: Analysis) -> Ints:
        numbers = [step.number for step in analysis.steps]
        return np.searchsorted(self._numbers, numbers)


def _names(analysis: Analysis) -> dict[str, str]:
    recording = analysis.recording
    compiled = (each.file for each in recording.compiles if each.file is not None)
    return file_names((*(f.file for f in _frames(analysis)), *compiled), recording.settings)


def _frames(analysis: Analysis) -> Iterator[Frame]:
    """Yield the lines that a recording tells, each with its text where that was recorded."""
    for place in (*analysis.places, *analysis.idle.places):
        if place.file is not None and place.line is not None:
            yield Frame(place.file, place.line, place.function or "", place.code)
        yield from place.stack
    for graph in analysis.recording.graphs:
        for node in graph.nodes:
            yield from node.lineage.stack
    yield from _monitored_frames(analysis)


def _monitored_frames(analysis: Analysis) -> Iterable[Frame]:
    python = analysis.recording.python
    if python is None:
        return
    for each in python.positions:
        if each.function is not None and each.line:
            function = python.functions[each.function]
            yield Frame(function.file, each.line, function.name, each.code)
