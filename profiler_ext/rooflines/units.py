"""Owns the unit of each launch, and how it is known: by its name, its call, its operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.records import Interned, Ints, Launches, LaunchKind
from profiler_ext.rooflines.calls import Calls
from profiler_ext.rooflines.kernel_units import unit_of_kernel
from profiler_ext.rooflines.words import Unit, UnitEvidence
from profiler_ext.rooflines.work import Work

_UNITS = tuple(Unit)
_EVIDENCE = ("", *UnitEvidence)
_NONE = -1
_NAMED = (LaunchKind.EXTERN, LaunchKind.EAGER)


@dataclass(frozen=True, slots=True)
class Units:
    """One row for each launch.

    Attributes:
        unit: a ``Unit``, or ``""``.
        evidence: a ``UnitEvidence``, or ``""``.
    """

    unit: Interned
    evidence: Interned


def units_of(launches: Launches, calls: Calls, works: Sequence[Work], of_launch: Ints) -> Units:
    """Return the unit that each launch used.

    A name outweighs operands. Of a call whose kernels' names tell several units none is told.

    Args:
        launches: the launches.
        calls: which of them belong together.
        works: what is known of calls.
        of_launch: which of these each launch has.
    """
    own = _named(launches)
    called, is_split = _of_call(own, calls)
    by_operands = np.array([_NONE if w.unit is None else _UNITS.index(w.unit) for w in works], np.int64)
    why = np.array([0 if w.evidence is None else _EVIDENCE.index(w.evidence) for w in works])
    unit = np.where(called != _NONE, called, by_operands[of_launch])
    by_name = np.where(
        own != _NONE,
        _EVIDENCE.index(UnitEvidence.KERNEL_NAME),
        _EVIDENCE.index(UnitEvidence.CALLED_KERNEL),
    )
    evidence = np.where(called != _NONE, by_name, why[of_launch])
    on_cpu = np.ma.getmaskarray(launches.stream)
    unit = np.where(is_split | on_cpu, _NONE, unit)
    evidence = np.where(unit == _NONE, 0, evidence)
    # The first string stands for a unit that is not known.
    return Units(_interned(unit + 1, ("", *_UNITS)), _interned(evidence, _EVIDENCE))


def _interned(codes: Ints, strings: tuple[str, ...]) -> Interned:
    return Interned(codes.astype(np.int32), tuple(map(str, strings)))


def _named(launches: Launches) -> Ints:
    names = launches.name
    named_units = [unit_of_kernel(text) for text in names.strings]
    of_name = np.array([_NONE if u is None else _UNITS.index(u) for u in named_units], np.int64)
    by_name = of_name[names.codes] if len(of_name) else np.full(len(names), _NONE)
    return np.where(launches.kind.where(*_NAMED), by_name, _NONE)


def _of_call(own: Ints, calls: Calls) -> tuple[Ints, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Return the one unit that the names of a call's kernels tell, and where they tell several."""
    highest = np.full(len(calls.last), _NONE, np.int64)
    np.maximum.at(highest, calls.number, own)
    lowest = np.full(len(calls.last), len(_UNITS), np.int64)
    np.minimum.at(lowest, calls.number, np.where(own == _NONE, len(_UNITS), own))
    is_split = (highest != _NONE) & (lowest != highest)
    return highest[calls.number], is_split[calls.number]
