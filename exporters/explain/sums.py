"""The sums of what was chosen: by line, module and op, by kernel, by step, by rule.

Launches are many and places are few, so launches are summed as columns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from profiler_ext.exporters.explain.subjects import SelectedShares
from profiler_ext.exporters.json_output.explained import KernelRow, PartRow, StepTime
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints
from profiler_ext.records.share_sums import KeyedShares, codes_of, kernel_names


@dataclass(slots=True)
class Sum:
    """Time, what it is of by phase, and how many launches have a part in it."""

    duration_ns: int = 0
    phases_ns: dict[str, int] = field(default_factory=dict)
    launches: int = 0


Sums = dict[Hashable, Sum]


def by_place(
    ranks: Sequence[SelectedShares], key: Callable[[Place], Hashable], *, others: bool = False
) -> Sums:
    """Return shares summed by what their places are, largest first."""
    sums: Sums = {}
    for each in ranks:
        rows = each.others if others else each.own
        of_place, names = codes_of(map(key, each.analysis.places))
        codes = of_place[each.place_of(rows)]
        has_name = codes >= 0
        _add(sums, each, rows[has_name], codes[has_name], names)
    return _ordered(sums)


def by_launch(
    ranks: Sequence[SelectedShares],
    key: Callable[[SelectedShares], tuple[Ints, Sequence[Hashable]]],
) -> Sums:
    """Return own shares summed by what their launches are, largest first.

    Args:
        key: a number for each launch of a rank, and what each number stands for.
    """
    sums: Sums = {}
    for each in ranks:
        codes, names = key(each)
        _add(sums, each, each.own, codes[each.launch_of(each.own)], names)
    return _ordered(sums)


def part_rows(sums: Mapping[Hashable, Sum], names: Sequence[str]) -> list[PartRow]:
    """Return sums as rows."""
    return [_part(dict(zip(names, _as_tuple(key), strict=True)), sums[key]) for key in sums]


def total(ranks: Sequence[SelectedShares]) -> Sum:
    """Return the sum of all own shares."""
    return by_place(ranks, lambda _: "own").get("own", Sum())


def times_by_place(
    ranks: Sequence[SelectedShares], rule: Callable[[Place], str | None]
) -> dict[str, int]:
    """Return own time by what a place names, most first; what names nothing is left out."""
    return {str(name): each.duration_ns for name, each in by_place(ranks, rule).items()}


def times_by_site_evidence(ranks: Sequence[SelectedShares]) -> dict[str, int]:
    """Return own time by the rule that tied each launch, most first."""
    sums = by_launch(ranks, _evidence)
    return {str(name): each.duration_ns for name, each in sums.items() if name}


def step_times(ranks: Sequence[SelectedShares]) -> list[StepTime]:
    """Return own time by rank and step; a step without any has zero."""
    return [time for each in ranks for time in _steps(each)]


def kernel_rows(ranks: Sequence[SelectedShares]) -> list[KernelRow]:
    """Return the kernels of the launches, those with most own time first."""
    own = by_launch(ranks, lambda each: kernel_names(each.analysis))
    whole = _whole_launches(ranks)
    rules = by_launch(ranks, _kernels_and_evidence)
    return [_kernel(name, own[name], whole[name], rules) for name in own]


def _add(
    sums: Sums, each: SelectedShares, rows: Ints, codes: Ints, names: Sequence[Hashable]
) -> None:
    """Add the time of shares to the sums that their codes name."""
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


def _ordered(sums: Sums) -> Sums:
    return dict(sorted(sums.items(), key=lambda item: (-item[1].duration_ns, repr(item[0]))))


def _as_tuple(key: Hashable) -> tuple[Hashable, ...]:
    return key if isinstance(key, tuple) else (key,)


def _part(named: dict[str, Hashable], of: Sum) -> PartRow:
    times = {"duration_ns": of.duration_ns, "launches": of.launches, "phases_ns": of.phases_ns}
    return PartRow(**named, **times)  # type: ignore[arg-type]


def _evidence(each: SelectedShares) -> tuple[Ints, Sequence[Hashable]]:
    evidence = each.analysis.launches.evidence
    return evidence.codes.astype(np.int64), evidence.strings


def _kernels_and_evidence(each: SelectedShares) -> tuple[Ints, Sequence[Hashable]]:
    codes, kernels = kernel_names(each.analysis)
    rules = each.analysis.launches.evidence
    every = max(len(rules.strings), 1)
    names = [(kernel, rule) for kernel in kernels for rule in (rules.strings or ("",))]
    return codes * every + rules.codes, names


def _whole_launches(ranks: Sequence[SelectedShares]) -> dict[Hashable, list[int]]:
    whole: dict[Hashable, list[int]] = {}
    for each in ranks:
        codes, names = kernel_names(each.analysis)
        of_launch, duration = codes[each.launches], each.analysis.launches.duration_ns
        for code in np.unique(of_launch).tolist():
            times = duration[each.launches[of_launch == code]].tolist()
            whole.setdefault(names[code], []).extend(times)
    return {name: sorted(times) for name, times in whole.items()}


def _kernel(name: Hashable, own: Sum, whole: Sequence[int], rules: Sums) -> KernelRow:
    kernel, event, kind = _as_tuple(name)
    of_rule = {
        _as_tuple(key)[1]: rules[key].duration_ns for key in rules if _as_tuple(key)[0] == name
    }
    return KernelRow(
        kernel=str(kernel),
        name=str(event),
        kind=str(kind),
        launches=own.launches,
        duration_ns=own.duration_ns,
        whole_ns=sum(whole),
        min_ns=whole[0],
        median_ns=int(np.median(whole)),
        max_ns=whole[-1],
        phases_ns=own.phases_ns,
        site_evidence_ns={str(rule): time for rule, time in of_rule.items() if rule},
    )


def _steps(each: SelectedShares) -> list[StepTime]:
    numbers = [step.number for step in each.analysis.steps]
    step_of = np.searchsorted(np.array(numbers), np.ma.getdata(each.analysis.launches.step))
    sums = by_launch([each], lambda _: (step_of.astype(np.int64), numbers))
    step_sums = [(number, sums.get(number, Sum())) for number in numbers]
    rank = each.analysis.recording.settings.rank
    return [
        StepTime(rank=rank, step=number, duration_ns=of.duration_ns, phases_ns=of.phases_ns)
        for number, of in step_sums
    ]
