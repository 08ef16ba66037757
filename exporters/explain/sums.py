"""Sums of selected shares: by line, module and op, by kernel, by step, by rule."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeVar

import numpy as np

from profiler_ext.exporters.explain.subjects import SelectedShares
from profiler_ext.exporters.json_output.explained import KernelRow, PartRow, StepTime
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.events import Ints
from profiler_ext.records.share_sums import KeyedShares, codes_of, kernel_names

_Kernel = tuple[str, str, str]  # a kernel's name (or the event's), the event's own, and its kind
_Name = TypeVar("_Name", bound=Hashable)


@dataclass(slots=True)
class Sum:
    """Time, also by phase, and how many launches have a part in it."""

    duration_ns: int = 0
    phases_ns: dict[str, int] = field(default_factory=dict)
    launches: int = 0


Sums = dict[_Name, Sum]


def by_place(
    ranks: Sequence[SelectedShares], key: Callable[[Place], _Name | None], *, others: bool = False
) -> Sums[_Name]:
    """Return shares summed by a key of their places, the largest first."""
    sums: Sums[_Name] = {}
    for each in ranks:
        rows = each.others if others else each.own
        of_place, names = codes_of(map(key, each.analysis.places))
        codes = of_place[each.place_of(rows)]
        has_name = codes >= 0
        _add(sums, each, rows[has_name], codes[has_name], names)
    return _ordered(sums)


def by_launch(
    ranks: Sequence[SelectedShares], key: Callable[[Analysis], tuple[Ints, Sequence[_Name]]]
) -> Sums[_Name]:
    """Return own shares summed by a key of their launches: numbers, and their names."""
    sums: Sums[_Name] = {}
    for each in ranks:
        codes, names = key(each.analysis)
        _add(sums, each, each.own, codes[each.launch_of(each.own)], names)
    return _ordered(sums)


def part_rows(sums: Mapping[tuple[Any, ...], Sum], names: Sequence[str]) -> list[PartRow]:
    """Return sums as rows."""
    return [
        PartRow(
            **dict(zip(names, key, strict=True)),
            duration_ns=each.duration_ns,
            launches=each.launches,
            phases_ns=each.phases_ns,
        )
        for key, each in sums.items()
    ]


def total(ranks: Sequence[SelectedShares]) -> Sum:
    """Return the sum of all own shares."""
    return by_place(ranks, lambda _: "own").get("own", Sum())


def times_by_place(
    ranks: Sequence[SelectedShares], rule: Callable[[Place], str | None]
) -> dict[str, int]:
    """Return own time by a rule of places, the largest first, where the rule gives a name."""
    return {name: each.duration_ns for name, each in by_place(ranks, rule).items()}


def times_by_site_evidence(ranks: Sequence[SelectedShares]) -> dict[str, int]:
    """Return own time by the rule that tied each launch, the largest first."""
    sums = by_launch(ranks, _evidence)
    return {name: each.duration_ns for name, each in sums.items() if name}


def times_by_share_evidence(ranks: Sequence[SelectedShares]) -> dict[str, int]:
    """Return own time by the rule that split each launch, the largest first."""
    sums = by_launch(ranks, _share_evidence)
    return {name: each.duration_ns for name, each in sums.items() if name}


def step_times(ranks: Sequence[SelectedShares]) -> list[StepTime]:
    """Return own time by rank and step, also where it is zero."""
    return [time for each in ranks for time in _steps(each)]


def kernel_rows(ranks: Sequence[SelectedShares]) -> list[KernelRow]:
    """Return the kernels of the launches, by own time."""
    own, whole = by_launch(ranks, kernel_names), _launch_durations(ranks)
    evidence: dict[_Kernel, dict[str, int]] = {kernel: {} for kernel in own}
    for (kernel, rule), each in by_launch(ranks, _kernels_and_evidence).items():
        if rule:
            evidence[kernel][rule] = each.duration_ns
    return [_row(kernel, own[kernel], whole[kernel], evidence[kernel]) for kernel in own]


def _add(
    sums: Sums[_Name], each: SelectedShares, rows: Ints, codes: Ints, names: Sequence[_Name]
) -> None:
    shares = KeyedShares(each.analysis, rows, codes, len(names))
    for code, place, duration in shares.pairs_ns(each.place_of(rows)):
        phase = each.analysis.places[place].phase.value
        to = sums.setdefault(names[code], Sum())
        to.duration_ns += duration
        if duration:
            to.phases_ns[phase] = to.phases_ns.get(phase, 0) + duration
    counts, _ = shares.whole_launches()
    for code in np.flatnonzero(counts).tolist():
        sums[names[code]].launches += int(counts[code])


def _ordered(sums: Sums[_Name]) -> Sums[_Name]:
    return dict(sorted(sums.items(), key=lambda item: (-item[1].duration_ns, repr(item[0]))))


def _evidence(analysis: Analysis) -> tuple[Ints, Sequence[str]]:
    evidence = analysis.launches.evidence
    return evidence.codes.astype(np.int64), evidence.strings


def _share_evidence(analysis: Analysis) -> tuple[Ints, Sequence[str]]:
    evidence = analysis.launches.share_evidence
    return evidence.codes.astype(np.int64), evidence.strings


def _kernels_and_evidence(analysis: Analysis) -> tuple[Ints, Sequence[tuple[_Kernel, str]]]:
    (codes, kernels), (rule_codes, rules) = kernel_names(analysis), _evidence(analysis)
    return codes * len(rules) + rule_codes, list(product(kernels, rules))


def _launch_durations(ranks: Sequence[SelectedShares]) -> dict[_Kernel, list[int]]:
    """Return the durations of each kernel's launches."""
    whole: dict[_Kernel, list[int]] = {}
    for each in ranks:
        codes, names = kernel_names(each.analysis)
        times = each.analysis.launches.duration_ns[each.launches].tolist()
        for code, time in zip(codes[each.launches].tolist(), times, strict=True):
            whole.setdefault(names[code], []).append(time)
    return whole


def _row(
    names: _Kernel, own: Sum, whole: Sequence[int], site_evidence_ns: dict[str, int]
) -> KernelRow:
    kernel, name, kind = names
    return KernelRow(
        kernel=kernel,
        name=name,
        kind=kind,
        launches=own.launches,
        duration_ns=own.duration_ns,
        total_ns=sum(whole),
        min_ns=min(whole),
        median_ns=int(np.median(whole)),
        max_ns=max(whole),
        phases_ns=own.phases_ns,
        site_evidence_ns=site_evidence_ns,
    )


def _steps(each: SelectedShares) -> list[StepTime]:
    numbers = [step.number for step in each.analysis.steps]
    step_of = np.searchsorted(np.array(numbers), np.ma.getdata(each.analysis.launches.step))
    sums = by_launch([each], lambda _: (step_of.astype(np.int64), numbers))
    rank = each.analysis.recording.settings.rank
    return [
        StepTime(rank=rank, step=number, duration_ns=of.duration_ns, phases_ns=of.phases_ns)
        for number, of in ((number, sums.get(number, Sum())) for number in numbers)
    ]
