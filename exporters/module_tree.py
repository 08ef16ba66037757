"""Owns modules as a tree: inclusive times, numbered layers as one, and which of them stand out.

Pure: the terminal prints what is here, and report.html takes its folds and outliers from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from profiler_ext.findings.siblings import outlier_indices

ANY = "*"
_MIN_FOLDED = 2
_OUTLIER_MARGIN = 0.1
_MAX_DEPTH = 64  # names of a path; a path comes from a file, and what is below this is one name

Times = Mapping[str, int]
Classes = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class ModuleNode:
    """A module, or numbered modules of one class and parent as one, and what is below.

    Attributes:
        path: its path; a number that stands for several modules is ``*``: ``layers.*.mlp``.
        module_class: the class, where it is known and one.
        modules: how many modules it stands for.
        own_ns: time of its own, without the modules below it.
        inclusive_ns: time of its own and of all below it.
        below: what is below it, largest first.
        outliers: of folded layers those that stand out, by path; the largest first.
    """

    path: str
    module_class: str | None
    modules: int
    own_ns: int
    inclusive_ns: int
    below: tuple[ModuleNode, ...]
    outliers: tuple[Outlier, ...] = ()

    @property
    def name(self) -> str:
        """The last name of its path; ``""`` is the model itself."""
        return _parent_and_name(self.path)[1]


@dataclass(frozen=True, slots=True)
class Outlier:
    """A layer that takes longer or shorter than those that it is folded with.

    Attributes:
        path: its path.
        inclusive_ns: its time.
        median_ns: the median of the layers that it is folded with.
    """

    path: str
    inclusive_ns: int
    median_ns: int


def root_label(models: Sequence[str]) -> str:
    """Return what the root of a tree is called.

    Args:
        models: the names of a recording's models, none where it has one.
    """
    return "(all models)" if models else "(the model itself)"


def module_tree(own_ns: Times, classes: Classes, fold: bool = True) -> ModuleNode:
    """Return modules as a tree under the model itself.

    Args:
        own_ns: path of a module to the time of its own; ``""`` is the model itself.
        classes: path of a module to its class.
        fold: numbered modules of one parent and class are one.

    Returns:
        The model itself; its inclusive time is all time.
    """
    every = inclusive_times(own_ns)
    folds = folded_paths(every, classes) if fold else {path: path for path in every}
    return _TreeBuilder(own_ns, every, classes, folds).node("")


def inclusive_times(own_ns: Times) -> dict[str, int]:
    """Return the time of each module with all that is below it; parents without time are added.

    Args:
        own_ns: path of a module to the time of its own.
    """
    sums: dict[str, int] = {"": 0}
    for path, time in own_ns.items():
        for above in _with_parents(path):
            sums[above] = sums.get(above, 0) + time
    return sums


def summed_by_fold(own: Times, folds: Mapping[str, str]) -> dict[str, int]:
    """Add up an amount of modules, with all that is below each, for each row of a tree.

    Args:
        own: path of a module to its own amount.
        folds: path of each module, and of those above it, to its row.

    Returns:
        Row of the tree to the sum.
    """
    sums: dict[str, int] = {}
    for path, amount in inclusive_times(own).items():
        sums[folds[path]] = sums.get(folds[path], 0) + amount
    return sums


def folded_paths(paths: Mapping[str, object], classes: Classes) -> dict[str, str]:
    """Return each path with ``*`` for the numbers of modules that are alike.

    Numbered modules of one parent are alike where they are of one class, as far as that is known.

    Args:
        paths: the paths, with all their parents.
        classes: path of a module to its class.
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
    deviation by the measure of :mod:`profiler_ext.findings.siblings`, which a finding shares.

    Args:
        inclusive_ns: path of a module to its time with all below it.
        folds: each path with ``*`` for what is folded.
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
