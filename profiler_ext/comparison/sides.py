"""A side of a comparison: its runs, with the parts of all their steps.

A file has one name in two checkouts, on two machines and in two environments, and torch run from
its sources is named as an installed one. Files of a run that would share a name keep whole paths.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import numpy as np

from profiler_ext.comparison import matching, records, significance
from profiler_ext.comparison.parts import (
    Parts,
    join,
    parts_of_breakdown,
    parts_of_compiles,
    parts_of_steps,
)
from profiler_ext.errors import UsageError
from profiler_ext.kineto.launch_shapes import launch_shapes
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Ints
from profiler_ext.records.lineage import Frame
from profiler_ext.records.recording import Cell, Settings

Shape = tuple[str, str]  # grid and block, ``1024`` or ``64x4`` each
_PACKAGES = ("torch", "triton")


def file_names(paths: Iterable[str], settings: Settings) -> dict[str, str]:
    """Return the name of each path: without its root, where that is unambiguous."""
    libraries = (PurePath(root) for root in settings.library_roots)
    above = (str(path.parent if path.name in _PACKAGES else path) for path in libraries)
    roots = (*settings.user_roots, *above)
    longest_first = sorted({root.rstrip("/") + "/" for root in roots}, key=len, reverse=True)
    short = {
        path: path.removeprefix(next(filter(path.startswith, longest_first), ""))
        for path in dict.fromkeys(paths)
    }
    name_counts = Counter(short.values())
    return {path: name if name_counts[name] == 1 else path for path, name in short.items()}


def shapes_of(analyses: Iterable[Analysis]) -> Mapping[matching.Kernel, Shape]:
    """Return the launch shape of each kernel whose launches are alike."""
    # Inductor autotunes: one program's kernel may be launched otherwise after another compile.
    every: dict[matching.Kernel, set[Shape]] = {}
    for analysis in analyses:
        for kernel, shape in _distinct(analysis):
            every.setdefault(kernel, set()).add(shape)
    alike = ((kernel, own) for kernel, own in every.items() if len(own) == 1)
    return {kernel: shape for kernel, (shape,) in alike if all(shape)}


def _distinct(analysis: Analysis) -> Iterable[tuple[matching.Kernel, Shape]]:
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
    """Return a size without trailing dimensions of 1."""
    while size.endswith("x1"):
        size = size.removesuffix("x1")
    return size


@dataclass(frozen=True, slots=True)
class RunOfRanks:
    """A run to compare: its name and the analysis of each rank."""

    name: str
    analyses: tuple[Analysis, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison."""

    runs: tuple[records.Run, ...]
    run_of_step: Ints  # row of each step's run; a step of several ranks is one
    ranks_of_step: Ints  # how many ranks each step sums
    parts: Parts  # of the steps' wall time; add up to the breakdown
    breakdown: Parts
    compiles: Parts  # compile time of each run; its steps are the runs
    lines: Mapping[tuple[str, int], Frame]  # all recorded lines, by file and number
    paths: Mapping[str, str]  # path of each file by its name, of the first run
    versions: tuple[str, ...] = ()  # files of which runs have different texts of one line
    # text of each notebook cell with time; a recording also has cells that ran before
    cells: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    on_cpu: bool = False  # no launch ran on a device of its own
    # launch shape of each kernel whose launches are alike
    shapes: Mapping[matching.Kernel, Shape] = field(default_factory=dict)
    analyses_of_runs: tuple[tuple[Analysis, ...], ...] = ()  # one for each rank of each run

    @property
    def analyses(self) -> tuple[Analysis, ...]:
        """The analyses of all runs and ranks."""
        return tuple(analysis for run in self.analyses_of_runs for analysis in run)

    @property
    def steps(self) -> int:
        """How many steps its times sum, each rank's for itself."""
        return int(self.ranks_of_step.sum())

    def sample(self, sums: Ints) -> significance.Sample:
        """Return times of its steps, a column a row of a table, as a sample."""
        return significance.Sample(sums, self.ranks_of_step, self.run_of_step, self.on_cpu)


def side(runs: Sequence[RunOfRanks]) -> Side:
    """Return the side of some runs, each of which must have a step."""
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
        breakdown=join([part for each, start in started for part in each.breakdown(start)]),
        compiles=join([part for row, each in enumerate(every) for part in each.compiles(row)]),
        lines=lines,
        paths=dict(ChainMap(*(each.paths for each in every))),
        versions=versions,
        cells={cell.name: cell.lines for cell in cells if cell.name in timed},
        on_cpu=all(bool(np.ma.getmaskarray(a.launches.stream).all()) for a in analyses),
        shapes=shapes_of(analyses),
        analyses_of_runs=tuple(run.analyses for run in runs),
    )


def _recorded_lines(
    every: Iterable[_AlignedRun],
) -> tuple[dict[tuple[str, int], Frame], tuple[str, ...]]:
    """Return the lines of runs, and the files with different texts of one line."""
    known: dict[tuple[str, int], Frame] = {}
    versions: set[str] = set()
    for own in (each.lines for each in every):
        both = own.keys() & known.keys()
        texts = ((key[0], own[key].code, known[key].code) for key in both)
        versions |= {
            file for file, one, other in texts if one and other and one.split() != other.split()
        }
        known = own | known
    return known, tuple(sorted(versions))


def _check(runs: Sequence[RunOfRanks]) -> None:
    if not runs:
        raise UsageError("there is no run to compare; give at least one session on each side")
    for run in runs:
        if not any(analysis.steps for analysis in run.analyses):
            raise UsageError(
                f"{run.name} has no profiled step, so there is no time of a step to compare; "
                "record one with `profiler-ext run`, or call step() of the profile"
            )


class _AlignedRun:
    """A run whose ranks' steps are aligned by their numbers."""

    def __init__(self, run: RunOfRanks) -> None:
        self.run = run
        numbers = [np.array([s.number for s in a.steps], np.int64) for a in run.analyses]
        self._numbers, of_step = np.unique(np.concatenate(numbers), return_inverse=True)
        self.steps = len(self._numbers)
        self.ranks_of_step = np.bincount(of_step, minlength=self.steps).astype(np.int64)
        self._named = [(analysis, file_names_of(analysis)) for analysis in run.analyses]

    def to_run(self) -> records.Run:
        first = self.run.analyses[0].recording
        devices = (name for analysis in self.run.analyses for name in analysis.device_names)
        return records.Run(
            name=self.run.name,
            command=first.settings.command,
            torch_version=first.settings.torch_version,
            devices=tuple(dict.fromkeys(devices)),
            ranks=tuple(a.recording.settings.rank for a in self.run.analyses),
            steps=self.steps,
        )

    def parts(self, start: int) -> Iterator[tuple[Parts, Ints]]:
        for analysis, display_names in self._named:
            yield parts_of_steps(analysis, display_names), start + self._rows(analysis)

    def breakdown(self, start: int) -> Iterator[tuple[Parts, Ints]]:
        for analysis, display_names in self._named:
            yield parts_of_breakdown(analysis, display_names), start + self._rows(analysis)

    def compiles(self, row: int) -> Iterator[tuple[Parts, Ints]]:
        for analysis, display_names in self._named:
            yield parts_of_compiles(analysis, display_names), np.array([row])

    @property
    def lines(self) -> dict[tuple[str, int], Frame]:
        result: dict[tuple[str, int], Frame] = {}
        for analysis, display_names in self._named:
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
        return {name: path for _, names in self._named for path, name in names.items()}

    def _rows(self, analysis: Analysis) -> Ints:
        numbers = [step.number for step in analysis.steps]
        return np.searchsorted(self._numbers, numbers)


def file_names_of(analysis: Analysis) -> dict[str, str]:
    """Return the name of each file of a recording."""
    recording = analysis.recording
    compiled = (each.file for each in recording.compiles if each.file is not None)
    return file_names((*(f.file for f in _frames(analysis)), *compiled), recording.settings)


def _frames(analysis: Analysis) -> Iterator[Frame]:
    """Yield a recording's lines, with their text where that was recorded."""
    for place in (*analysis.places, *analysis.idle.places):
        if place.file is not None and place.line is not None:
            yield Frame(place.file, place.line, place.function or "", place.code)
        yield from place.stack
    for graph in analysis.recording.graphs:
        for node in graph.nodes:
            yield from node.lineage.stack
    python = analysis.recording.python
    for each in () if python is None else python.positions:
        if python is not None and each.function is not None and each.line:
            function = python.functions[each.function]
            yield Frame(function.file, each.line, function.name, each.code)
