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
        keys = [key(place) for place in each.analysis.places]
        known = {name: at for at, name in enumerate(dict.fromkeys(keys))}
        codes = np.array([known[name] for name in keys], np.int64)
        _add(sums, each, rows, codes[each.place_of(rows)], list(known))
    sums.pop(None, None)
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
    own, whole = by_launch(ranks, _kernels), _whole_launches(ranks)
    rules = by_launch(ranks, _kernels_and_evidence)
    return [_kernel(name, own[name], whole[name], rules) for name in own]


def _add(
    sums: Sums, each: SelectedShares, rows: Ints, codes: Ints, names: Sequence[Hashable]
) -> None:
    """Add the time of shares to the sums that their codes name."""
    places, launches = max(len(each.analysis.places), 1), max(len(each.analysis.launches), 1)
    pairs, of_pair = np.unique(codes * places + each.place_of(rows), return_inverse=True)
    time = np.zeros(len(pairs), np.int64)
    np.add.at(time, of_pair, each.durations(rows))
    for pair, duration in zip(pairs.tolist(), time.tolist(), strict=True):
        name, phase = names[pair // places], each.analysis.places[pair % places].phase.value
        to = sums.setdefault(name, Sum())
        to.duration_ns += duration
        if duration:
            to.phases_ns[phase] = to.phases_ns.get(phase, 0) + duration
    once = np.unique(codes * launches + each.launch_of(rows)) // launches
    for code, count in zip(*(c.tolist() for c in np.unique(once, return_counts=True)), strict=True):
        sums[names[code]].launches += count


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


def _kernels(each: SelectedShares) -> tuple[Ints, Sequence[Hashable]]:
    """Number the launches by kernel (or the event, where Inductor launched none), name and kind."""
    launches = each.analysis.launches
    columns = (launches.kernel, launches.name, launches.kind)
    codes = np.column_stack([column.codes for column in columns]).astype(np.int64)
    distinct, of_launch = np.unique(codes.reshape(-1, 3), axis=0, return_inverse=True)
    names = []
    for numbers in distinct.tolist():
        kernel, name, kind = (c.strings[n] for c, n in zip(columns, numbers, strict=True))
        names.append((kernel or name, name, kind))
    return of_launch.reshape(-1).astype(np.int64), names


def _kernels_and_evidence(each: SelectedShares) -> tuple[Ints, Sequence[Hashable]]:
    codes, kernels = _kernels(each)
    rules = each.analysis.launches.evidence
    every = max(len(rules.strings), 1)
    names = [(kernel, rule) for kernel in kernels for rule in (rules.strings or ("",))]
    return codes * every + rules.codes, names


def _whole_launches(ranks: Sequence[SelectedShares]) -> dict[Hashable, list[int]]:
    whole: dict[Hashable, list[int]] = {}
    for each in ranks:
        codes, names = _kernels(each)
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
