"""Resolves a name to a line, module or kernel, and selects its shares of launches.

A name matches exactly first; then as the end of a path, or a part of a kernel's name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

import numpy as np
import numpy.typing as npt

from profiler_ext.errors import UnclearNameError
from profiler_ext.exporters.launch_parts import THE_MODEL
from profiler_ext.exporters.views import formatting, modules
from profiler_ext.printable import printable
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.events import Codes, Ints
from profiler_ext.records.share_sums import profiled_shares, sum_by, sum_by_name

_LINE = re.compile(r"(?P<file>.+):(?P<line>\d{1,18})")
_MAX_CANDIDATES = 12
Flags = npt.NDArray[np.bool_]


class Kind(StrEnum):
    """What a name is of."""

    LINE = "line"
    MODULE = "module"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True)
class Subject:
    """A line, module or kernel."""

    kind: Kind
    name: str  # a module's path or a kernel's name; of a line, its file
    line: int = 0  # of a line, its number


Times = Mapping[Subject, int]


def resolve_subject(query: str, analyses: Sequence[Analysis]) -> Subject:
    """Return the subject that a name means; a line of a known file may have no time.

    Args:
        query: ``FILE:LINE``, a module's path, or a kernel's name; ``line:``, ``module:`` or
            ``kernel:`` before it says which.

    Raises:
        UnclearNameError: It means several things, or none.
    """
    times = sum_by_name(pair for analysis in analyses for pair in _named(analysis))
    kind, name = _split(query)
    within = {each: time for each, time in times.items() if kind in (None, each.kind)}
    for fits in (_is_exactly, _ends_with, _contains):
        matches = [each for each in within if fits(each, name)]
        matches = [each for each in matches if times[each]] or matches
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise _ambiguous(query, matches, times, analyses)
    if (other := _line_without_time(name, within) or _pattern(name, within)) is not None:
        return other
    raise _unknown(query, name, within, analyses)


def subject_label(subject: Subject, analysis: Analysis) -> str:
    """Return the shortest name that resolves to a subject."""
    if subject.kind is Kind.LINE:
        return f"{formatting.short_path(subject.name, analysis.recording.settings)}:{subject.line}"
    return subject.name or THE_MODEL


def _named(analysis: Analysis) -> Iterable[tuple[Subject, int]]:
    shares, rows = analysis.shares, profiled_shares(analysis)
    time = sum_by(shares.place[rows], shares.duration_ns[rows], len(analysis.places))
    for place, spent in zip(analysis.places, time.tolist(), strict=True):
        yield from ((line, spent) for line in _own_line(place))
        for path in [] if place.module is None else modules.parents(place.module):
            yield Subject(Kind.MODULE, path), spent
    yield from ((line, 0) for line in dict.fromkeys(_other_lines(analysis)))
    yield from _kernels(analysis)


def _kernels(analysis: Analysis) -> Iterable[tuple[Subject, int]]:
    """Yield kernels by Inductor's name, and by the device's where that differs."""
    launches, within = analysis.launches, analysis.launches.in_steps
    kernel, name = launches.kernel, launches.name
    number = {text: code for code, text in enumerate(kernel.strings)}
    as_kernel = np.array([number.get(text, -1) for text in name.strings], np.int64)
    differs = as_kernel[name.codes] != kernel.codes
    for column, selected in ((kernel, within & ~kernel.where("")), (name, within & differs)):
        codes = column.codes[selected]
        time = sum_by(codes, launches.duration_ns[selected], len(column.strings))
        for code in np.unique(codes).tolist():
            yield Subject(Kind.KERNEL, column.strings[code]), int(time[code])


def _own_line(place: Place) -> Iterable[Subject]:
    if place.file is not None and place.line is not None:
        yield Subject(Kind.LINE, place.file, place.line)


def _other_lines(analysis: Analysis) -> Iterable[Subject]:
    """Yield lines without own time: callers, lines of idle time, of graph nodes."""
    nodes = (node for graph in analysis.recording.graphs for node in graph.nodes)
    stacks = chain((p.stack for p in analysis.places), (node.lineage.stack for node in nodes))
    for frame in dict.fromkeys(frame for stack in stacks for frame in stack):
        yield Subject(Kind.LINE, frame.file, frame.line)
    for place in analysis.idle.places:
        yield from _own_line(place)


def _split(query: str) -> tuple[Kind | None, str]:
    before, colon, name = query.partition(":")
    if colon and before in tuple(Kind):
        return Kind(before), name
    return None, query


def _is_exactly(subject: Subject, name: str) -> bool:
    if subject.kind is Kind.LINE:
        return f"{subject.name}:{subject.line}" == name
    return name in (subject.name, subject.name or THE_MODEL) and bool(name)


def _ends_with(subject: Subject, name: str) -> bool:
    if subject.kind is Kind.LINE:
        query = _LINE.fullmatch(name)
        at_line = query is not None and int(query["line"]) == subject.line
        return at_line and query is not None and _is_file(subject.name, query["file"])
    return subject.kind is Kind.MODULE and bool(name) and subject.name.endswith("." + name)


def _contains(subject: Subject, name: str) -> bool:
    if subject.kind is Kind.LINE:
        return _is_file(subject.name, name)
    return subject.kind is Kind.KERNEL and len(name) > 2 and name in subject.name


def _is_file(path: str, name: str) -> bool:
    path, name = path.replace("\\", "/"), name.replace("\\", "/").removeprefix("./")
    return path == name or path.endswith("/" + name) or name.endswith("/" + path)


def _line_without_time(name: str, times: Times) -> Subject | None:
    """Return an unknown line of a known file."""
    query = _LINE.fullmatch(name)
    if query is None:
        return None
    files = {each.name for each in times if each.kind is Kind.LINE}
    fitting = [file for file in files if _is_file(file, query["file"])]
    return Subject(Kind.LINE, fitting[0], int(query["line"])) if len(fitting) == 1 else None


def _pattern(name: str, times: Times) -> Subject | None:
    """Return the modules that a pattern with ``*`` matches, as one subject."""
    paths = (each.name for each in times if each.kind is Kind.MODULE)
    is_there = "*" in name and any(modules.is_below(path, name) for path in paths)
    return Subject(Kind.MODULE, name) if is_there else None


def _ambiguous(
    query: str, matches: Iterable[Subject], times: Times, analyses: Sequence[Analysis]
) -> UnclearNameError:
    ordered = sorted(matches, key=lambda each: (-times[each], each.name, each.line))
    names = _full_names(ordered, analyses)
    more = f", and {len(names) - _MAX_CANDIDATES} more" if len(names) > _MAX_CANDIDATES else ""
    return UnclearNameError(
        f"{printable(query)} fits {len(names)} things; ask for one of: "
        f"{', '.join(map(printable, names[:_MAX_CANDIDATES]))}{more}",
        candidates=names,
        is_ambiguous=True,
    )


def _full_names(subjects: Sequence[Subject], analyses: Sequence[Analysis]) -> tuple[str, ...]:
    """Return names that each resolve to one; whole paths for lines of several files."""
    files = {each.name for each in subjects if each.kind is Kind.LINE}
    names = [
        f"{each.name}:{each.line}" if each.name in files and len(files) > 1 else short
        for each, short in ((each, subject_label(each, analyses[0])) for each in subjects)
    ]
    if len(set(names)) < len(names):
        pairs = zip(subjects, names, strict=True)
        names = [f"{each.kind}:{name}" for each, name in pairs]
    return tuple(names)


def _unknown(query: str, name: str, times: Times, analyses: Sequence[Analysis]) -> UnclearNameError:
    close = _close(name, [subject_label(each, analyses[0]) for each in times])
    hint = f"; did you mean {', '.join(map(printable, close))}?" if close else ""
    return UnclearNameError(
        f"there is no line, module or kernel {printable(query)!r} in the session{hint or '; '}"
        f"{'' if hint else 'name one as report --by line, module or kernel prints it'}",
        candidates=close,
        is_ambiguous=False,
    )


def _close(name: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return similar names, ignoring case."""
    by_lower: dict[str, str] = {each.lower(): each for each in names}
    key: Callable[[str], str] = by_lower.__getitem__
    return tuple(map(key, difflib.get_close_matches(name.lower(), list(by_lower), n=5, cutoff=0.5)))


@dataclass(frozen=True, slots=True)
class SelectedShares:
    """A subject's shares in the profiled steps, and the rest of their launches."""

    analysis: Analysis
    own: Ints  # rows of the subject's shares
    others: Ints  # rows of the other shares of the same launches
    launches: Ints  # rows of those launches, each once

    def durations(self, shares: Ints) -> Ints:
        """Return the durations of shares."""
        return self.analysis.shares.duration_ns[shares]

    def launch_of(self, shares: Ints) -> Ints:
        """Return the launch of each share."""
        return self.analysis.shares.launch[shares]

    def place_of(self, shares: Ints) -> Codes:
        """Return the place of each share."""
        return self.analysis.shares.place[shares]


def select_shares(analysis: Analysis, subject: Subject | None) -> SelectedShares:
    """Return a subject's shares, of a module with those below it; ``None`` for all."""
    shares = analysis.shares
    within = analysis.launches.in_steps[shares.launch]
    own = within if subject is None else within & _of_subject(analysis, subject)
    launches = np.unique(shares.launch[own])
    others = within & ~own & np.isin(shares.launch, launches)
    return SelectedShares(analysis, np.flatnonzero(own), np.flatnonzero(others), launches)


def is_of(place: Place, subject: Subject) -> bool:
    """Return whether a place is of a line, or of a module or one below it."""
    if subject.kind is Kind.LINE:
        return (place.file, place.line) == (subject.name, subject.line)
    return place.module is not None and modules.is_below(place.module, subject.name)


def calls(place: Place, subject: Subject) -> bool:
    """Return whether a line called a place's line, and is not that line."""
    line = (subject.name, subject.line)
    if (place.file, place.line) == line:
        return False
    known = {(frame.file, frame.line) for frame in place.stack}
    known |= {(place.user_file or "", place.user_line or 0)}
    known |= {(place.caller_file or "", place.caller_line or 0)}
    return line in known


def _of_subject(analysis: Analysis, subject: Subject) -> Flags:
    if subject.kind is Kind.KERNEL:
        launches = analysis.launches
        is_kernel: Flags = launches.kernel.where(subject.name) | launches.name.where(subject.name)
        return is_kernel[analysis.shares.launch]
    places = np.array([is_of(each, subject) for each in analysis.places], np.bool_)
    return places[analysis.shares.place]
