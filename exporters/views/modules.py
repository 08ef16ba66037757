"""The module tree: inclusive times, folded layers, rooflines, outliers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
Row = Mapping[str, Any]
# As for one module, a roofline of less than half of a row's time does not represent it.
_MIN_KNOWN_PART = 2


@dataclass(frozen=True, slots=True)
class ModuleNode:
    """A module, or folded layers of one class and parent."""

    path: str  # folded: ``layers.*.mlp``
    module_class: str | None  # if known and the same for all
    modules: int  # number of modules folded
    own_ns: int  # without submodules
    inclusive_ns: int  # with submodules
    below: tuple[ModuleNode, ...]  # longest first
    outliers: tuple[Outlier, ...] = ()  # among folded layers, longest first

    @property
    def name(self) -> str:
        """The last part of its path; ``""`` is the model itself."""
        return _parent_and_name(self.path)[1]


@dataclass(frozen=True, slots=True)
class Outlier:
    """A layer slower or faster than the folded layers that hold the same modules."""

    path: str
    inclusive_ns: int
    median_ns: int  # of these layers


def root_label(models: Sequence[str]) -> str:
    """Return the root's label."""
    return "(all models)" if models else "(the model itself)"


def module_tree(own_ns: Times, classes: Classes) -> ModuleNode:
    """Return the module tree, from the modules' own times; ``""`` is the model itself."""
    every = inclusive_times(own_ns)
    return _TreeBuilder(own_ns, every, classes, folded_paths(every, classes)).node("")


def inclusive_times(own_ns: Times) -> dict[str, int]:
    """Return each module's time with its submodules; parents without own time are added."""
    sums: dict[str, int] = {"": 0}
    for path, time in own_ns.items():
        for above in _with_parents(path):
            sums[above] = sums.get(above, 0) + time
    return sums


def summed_by_fold(own: Times, folds: Mapping[str, str]) -> dict[str, int]:
    """Sum amounts of modules, submodules included, by the rows of ``folds``."""
    sums: dict[str, int] = {}
    for path, amount in inclusive_times(own).items():
        sums[folds[path]] = sums.get(folds[path], 0) + amount
    return sums


def folded_paths(paths: Mapping[str, object], classes: Classes) -> dict[str, str]:
    """Return each path with ``*`` for the numbers of equal layers: of one parent and one class."""
    groups: dict[tuple[str, str | None], list[str]] = {}
    for path in paths:
        parent, name = _parent_and_name(path)
        if name.isascii() and name.isdigit():
            groups.setdefault((parent, classes.get(path)), []).append(path)
    classes_below = Counter(parent for parent, _ in groups)
    alike = [each for (parent, _), each in groups.items() if classes_below[parent] == 1]
    starred = {path for each in alike if len(each) >= _MIN_FOLDED for path in each}
    return {path: _folded(path, starred) for path in paths}


def outliers(inclusive_ns: Times, folds: Mapping[str, str]) -> dict[str, Outlier]:
    """Return the outliers among folded layers, by path.

    An outlier is more than 10% from the median of the layers with the same modules in them, and
    beyond the usual deviation as :mod:`profiler_ext.findings.outliers` measures it, which a finding
    shares.
    """
    unusual = {}
    for group in _siblings(inclusive_ns, folds):
        times = [inclusive_ns.get(path, 0) for path in group]
        for at in outlier_indices(times, _OUTLIER_MARGIN):
            unusual[group[at]] = Outlier(group[at], times[at], round(median(times)))
    return unusual


def _siblings(paths: Iterable[str], folds: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the folded layers of one parent that hold the same modules."""
    parents_of = {
        path: _parent_and_name(path)[0]
        for path, folded in folds.items()
        if _parent_and_name(folded)[1] == ANY
    }
    inside: dict[str, set[str]] = {layer: set() for layer in parents_of}
    for path in paths:
        for above in _with_parents(path):
            if above in inside:
                inside[above].add(path[len(above) :])
    groups: dict[tuple[str, frozenset[str]], list[str]] = {}
    for layer, parent in parents_of.items():
        groups.setdefault((parent, frozenset(inside[layer])), []).append(layer)
    yield from groups.values()


class _TreeBuilder:
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
        unusual = outliers(self._every, dict.fromkeys(paths, folded)).values()
        return tuple(sorted(unusual, key=lambda each: -each.inclusive_ns))


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


def tree_rooflines(rows: Sequence[Row], fold: bool = True) -> dict[str, dict[str, Any]]:
    """Return the roofline columns of each row of the module tree, by path."""
    own = {row["module"]: row["duration_ns"] for row in rows}
    every = inclusive_times(own)
    folds = {path: path for path in every}
    if fold:
        folds = folded_paths(every, {row["module"]: row["module_class"] for row in rows})
    of_modules = _ModuleRooflines(rows, folds)
    return {path: of_modules.of(path, took) for path, took in summed_by_fold(own, folds).items()}


class _ModuleRooflines:
    def __init__(self, rows: Sequence[Row], folds: Mapping[str, str]) -> None:
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
        """Return the roofline columns of a tree row."""
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
    """Return the part of a module's time with a known roofline; with several ranks, all of it."""
    fraction, whole = row.get("est_peak_fraction"), int(row["duration_ns"])
    return round(row["roofline_ns"] / fraction) if fraction else whole


def _most(sums: Mapping[str, Times], path: str) -> str | None:
    return max(sums, key=lambda each: sums[each].get(path, 0), default=None)


@dataclass(frozen=True, slots=True)
class Folds:
    """Numbered layers folded as one: ``layers.*.mlp``."""

    paths: Mapping[str, str]  # module path to folded path
    members: Mapping[str, int]  # modules per folded path

    def of(self, path: str | None) -> tuple[str | None, int]:
        """Return a module's folded path, and how many modules share it."""
        if path is None:
            return None, 1
        folded = self.paths.get(path, path)
        return folded, self.members.get(folded, 1)


def folded_modules(analyses: Sequence[Analysis]) -> Folds:
    """Return the folded modules of a session."""
    places = [place for analysis in analyses for place in analysis.places]
    classes = {p.module: p.module_class for p in places if p.module is not None}
    paths = folded_paths(dict.fromkeys(path for each in classes for path in parents(each)), classes)
    return Folds(paths, Counter(paths[path] for path in classes))


def parents(path: str) -> list[str]:
    """Return the paths from the model to a module, itself included."""
    names = path.split(".") if path else []
    return ["", *(".".join(names[: at + 1]) for at in range(len(names)))]


def depth_of(path: str) -> int:
    """Return the number of parts of a path, 0 for the model itself."""
    return len(path.split(".")) if path else 0


def is_below(path: str, module: str) -> bool:
    """Return whether a module is another, or within it; ``*`` in ``module`` is a wildcard."""
    if "*" in module:
        return _pattern(module).match(path) is not None
    return path == module or not module or path.startswith(module + ".")


@cache
def _pattern(module: str) -> re.Pattern[str]:
    names = (re.escape(name).replace(r"\*", "[^.]*") for name in module.split("."))
    return re.compile(rf"{re.escape('.').join(names)}(\.|$)")
