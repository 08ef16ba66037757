"""Modules as a tree: paths, inclusive times, folded layers, rooflines, outliers.

Pure: the terminal prints what is here, and report.html takes its folds and outliers from it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from statistics import median
from typing import Any

from profiler_ext.findings.outliers import outlier_indices
from profiler_ext.records.analysis import Analysis

ANY = "*"
_MIN_FOLDED = 2
_OUTLIER_MARGIN = 0.1
_MAX_DEPTH = 64  # names of a path; a path comes from a file, and what is below this is one name

Times = Mapping[str, int]
Classes = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class ModuleNode:
    """A module, or numbered modules of one class and parent as one, and what is below."""

    path: str  # its path; a number that stands for several modules is ``*``: ``layers.*.mlp``
    module_class: str | None  # the class, where it is known and one
    modules: int  # how many modules it stands for
    own_ns: int  # time of its own, without the modules below it
    inclusive_ns: int  # time of its own and of all below it
    below: tuple[ModuleNode, ...]  # what is below it, largest first
    # of folded layers those that stand out, by path; the largest first
    outliers: tuple[Outlier, ...] = ()

    @property
    def name(self) -> str:
        """The last name of its path; ``""`` is the model itself."""
        return _parent_and_name(self.path)[1]


@dataclass(frozen=True, slots=True)
class Outlier:
    """A layer that takes longer or shorter than those that it is folded with."""

    path: str  # its path
    inclusive_ns: int  # its time
    median_ns: int  # the median of the layers that it is folded with


def root_label(models: Sequence[str]) -> str:
    """Return what the root of a tree is called."""
    return "(all models)" if models else "(the model itself)"


def module_tree(own_ns: Times, classes: Classes) -> ModuleNode:
    """Return modules as a tree under the model itself.

    Args:
        own_ns: path of a module to the time of its own; ``""`` is the model itself.
    """
    every = inclusive_times(own_ns)
    return _TreeBuilder(own_ns, every, classes, folded_paths(every, classes)).node("")


def inclusive_times(own_ns: Times) -> dict[str, int]:
    """Return the time of each module with all that is below it; parents without time are added."""
    sums: dict[str, int] = {"": 0}
    for path, time in own_ns.items():
        for above in _with_parents(path):
            sums[above] = sums.get(above, 0) + time
    return sums


def summed_by_fold(own: Times, folds: Mapping[str, str]) -> dict[str, int]:
    """Add up an amount of modules, with all that is below each, for each row of a tree.

    Args:
        folds: path of each module, and of those above it, to its row.
    """
    sums: dict[str, int] = {}
    for path, amount in inclusive_times(own).items():
        sums[folds[path]] = sums.get(folds[path], 0) + amount
    return sums


def folded_paths(paths: Mapping[str, object], classes: Classes) -> dict[str, str]:
    """Return each path with ``*`` for the numbers of modules that are alike.

    Numbered modules of one parent are alike where they are of one class, as far as that is known.
    """
    groups: dict[tuple[str, str | None], list[str]] = {}
    for path in paths:
        parent, name = _parent_and_name(path)
        if _is_number(name):
            groups.setdefault((parent, classes.get(path)), []).append(path)
    classes_below = Counter(parent for parent, _ in groups)
    alike = [each for (parent, _), each in groups.items() if classes_below[parent] == 1]
    starred = {path for each in alike if len(each) >= _MIN_FOLDED for path in each}
    return {path: _folded(path, starred) for path in paths}


def outliers(inclusive_ns: Times, folds: Mapping[str, str]) -> dict[str, Outlier]:
    """Return the folded layers whose time stands out from that of their like, by path.

    A time stands out that is further from the median than 10% of it, and than their usual
    deviation by the measure of :mod:`profiler_ext.findings.outliers`, which a finding shares.
    """
    outliers_found = {}
    for group in _layers(folds).values():
        times = [inclusive_ns.get(path, 0) for path in group]
        for at in outlier_indices(times, _OUTLIER_MARGIN):
            outliers_found[group[at]] = Outlier(group[at], times[at], round(median(times)))
    return outliers_found


def _layers(folds: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the layers that are folded together: those of one parent, by parent."""
    groups: dict[str, list[str]] = {}
    for path, folded in folds.items():
        if _parent_and_name(folded)[1] == ANY:
            groups.setdefault(_parent_and_name(path)[0], []).append(path)
    return groups


class _TreeBuilder:
    """The nodes of a tree, made from what each path folds to."""

    def __init__(
        self, own: Times, every: Times, classes: Classes, folds: Mapping[str, str]
    ) -> None:
        self._own, self._every, self._classes = own, every, classes
        self._members: dict[str, list[str]] = {}
        for path, folded in folds.items():
            self._members.setdefault(folded, []).append(path)
        self._below: dict[str, list[str]] = {}
        for folded in filter(None, self._members):
            self._below.setdefault(_parent_and_name(folded)[0], []).append(folded)

    def node(self, folded: str) -> ModuleNode:
        paths = self._members[folded]
        below = [self.node(each) for each in self._below.get(folded, ())]
        return ModuleNode(
            folded,
            self._class(paths),
            len(paths),
            sum(self._own.get(path, 0) for path in paths),
            sum(self._every[path] for path in paths),
            tuple(sorted(below, key=lambda each: -each.inclusive_ns)),
            self._outliers(folded, paths),
        )

    def _class(self, paths: Sequence[str]) -> str | None:
        named = {self._classes.get(path) for path in paths}
        return named.pop() if len(named) == 1 else None

    def _outliers(self, folded: str, paths: Sequence[str]) -> tuple[Outlier, ...]:
        if _parent_and_name(folded)[1] != ANY:
            return ()
        outliers_found = outliers(self._every, dict.fromkeys(paths, folded)).values()
        return tuple(sorted(outliers_found, key=lambda each: -each.inclusive_ns))


def _with_parents(path: str) -> Iterator[str]:
    while path:
        yield path
        path = _parent_and_name(path)[0]
    yield ""


def _parent_and_name(path: str) -> tuple[str, str]:
    *above, name = path.split(".", _MAX_DEPTH)
    return ".".join(above), name


def _folded(path: str, starred: set[str]) -> str:
    names = path.split(".", _MAX_DEPTH)
    ends = (".".join(names[: at + 1]) for at in range(len(names)))
    pairs = zip(names, ends, strict=True)
    return ".".join(ANY if end in starred else name for name, end in pairs)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


Row = Mapping[str, Any]
_MIN_KNOWN_PART = 2
"""As of one module, what is known of less than half of a row's time says nothing of it."""


def tree_rooflines(rows: Sequence[Row], fold: bool = True) -> dict[str, dict[str, Any]]:
    """Return the columns of rooflines of each row of the tree of modules, by its path."""
    own = {row["module"]: row["duration_ns"] for row in rows}
    every = inclusive_times(own)
    folds = {path: path for path in every}
    if fold:
        folds = folded_paths(every, {row["module"]: row["module_class"] for row in rows})
    rooflines_found = _ModuleRooflines(rows, folds)
    return {
        path: rooflines_found.of(path, took) for path, took in summed_by_fold(own, folds).items()
    }


class _ModuleRooflines:
    """Sums what rooflines say of modules over what a tree shows as one."""

    def __init__(self, rows: Sequence[Row], folds: Mapping[str, str]) -> None:
        """Take the modules.

        Args:
            folds: path of each module, and of those above it, to its row of the tree.
        """
        summed = partial(summed_by_fold, folds=folds)
        bounded = [row for row in rows if row["bound"]]
        self._bounded = summed({row["module"]: _bounded_ns(row) for row in bounded})
        self._roofline = summed({row["module"]: row["roofline_ns"] for row in bounded})
        self._saved = summed({row["module"]: row["could_save_ns"] or 0 for row in rows})
        self._by_bound = {
            bound: summed({r["module"]: _bounded_ns(r) for r in bounded if r["bound"] == bound})
            for bound in dict.fromkeys(row["bound"] for row in bounded)
        }
        self._by_unit = {
            unit: summed({r["module"]: r["est_flops"] or 0 for r in bounded if r["unit"] == unit})
            for unit in dict.fromkeys(row["unit"] for row in bounded if row["unit"])
        }
        self._has_fractions = all(row.get("est_peak_fraction") for row in bounded)

    def of(self, path: str, inclusive_ns: int) -> dict[str, Any]:
        """Return the columns of rooflines of a row of the tree."""
        saved, bounded = self._saved.get(path, 0), self._bounded.get(path, 0)
        if not bounded or _MIN_KNOWN_PART * bounded < inclusive_ns:
            return {"could_save_ns": saved}
        return {
            "could_save_ns": saved,
            "bound": _most(self._by_bound, path),
            "unit": _most(self._by_unit, path),
            "est_peak_fraction": self._roofline[path] / bounded if self._has_fractions else None,
        }


def _bounded_ns(row: Row) -> int:
    """Return the time of a module of which the roofline is known; of several ranks, all of it."""
    fraction, whole = row.get("est_peak_fraction"), int(row["duration_ns"])
    return round(row["roofline_ns"] / fraction) if fraction else whole


def _most(sums: Mapping[str, Times], path: str) -> str | None:
    return max(sums, key=lambda each: sums[each].get(path, 0), default=None)


@dataclass(frozen=True, slots=True)
class Folds:
    """Modules of numbered layers as one: ``layers.*.mlp``."""

    paths: Mapping[str, str]  # path of a module to what it is told as
    members: Mapping[str, int]  # how many modules are told as that

    def of(self, path: str | None) -> tuple[str | None, int]:
        """Return what a module is told as, and how many are."""
        if path is None:
            return None, 1
        folded = self.paths.get(path, path)
        return folded, self.members.get(folded, 1)


def folded_modules(analyses: Sequence[Analysis]) -> Folds:
    """Return which modules of a session are told as one."""
    places = [place for analysis in analyses for place in analysis.places]
    classes = {p.module: p.module_class for p in places if p.module is not None}
    paths = folded_paths(dict.fromkeys(path for each in classes for path in parents(each)), classes)
    return Folds(paths, Counter(paths[path] for path in classes))


def parents(path: str) -> list[str]:
    """Return the model's path, that of each module that one is in, and its own."""
    names = path.split(".") if path else []
    return ["", *(".".join(names[: at + 1]) for at in range(len(names)))]


def depth_of(path: str) -> int:
    """Return how many names a path has; the model itself has none."""
    return len(path.split(".")) if path else 0


def is_below(path: str, module: str) -> bool:
    """Tell whether a module is another, or one within it.

    Args:
        module: the path of the other, where ``*`` stands for any name or part of one; the model
            itself, whose path is empty, holds all.
    """
    if "*" in module:
        return _pattern(module).match(path) is not None
    return path == module or not module or path.startswith(module + ".")


@cache
def _pattern(module: str) -> re.Pattern[str]:
    """Return what paths of and below modules are like, of which some names are ``*``."""
    names = (re.escape(name).replace(r"\*", "[^.]*") for name in module.split("."))
    return re.compile(rf"{re.escape('.').join(names)}(\.|$)")
