"""The rule for a numbered layer that takes longer than its siblings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from profiler_ext.findings import collectives, outliers, rule
from profiler_ext.findings.facts import CannotJudge, Facts, Rows
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, Location
from profiler_ext.records import events, share_sums

_BEYOND = 0.5
_A_KIND = 3  # so many that take the same time are a kind of layer: some attend to all positions
# The largest measured slowdown of a product on an H200 during a collective
_COLLECTIVE_SLOWDOWN = 2
_CONVOLVES = re.compile(r"\bconvolution|_convolution\b|conv\dd")
_NUMBERED = re.compile(r"(?:^|\.)(\d+)(?=\.|$)")


@dataclass(frozen=True, slots=True)
class _Siblings:
    """Layers of one list with the same modules in each."""

    places: Mapping[str, list[int]]  # path of each to the indices of its places
    convolves: bool  # the list has convolutions, whose sizes may change from layer to layer
    ends: tuple[str, str]  # the first and the last layer of the list, siblings or not


def _judge(facts: Facts) -> Iterable[rule.Candidate] | CannotJudge:
    every, slowed = np.ones(len(facts.launches), np.bool_), collectives.overlaps_collective(facts)
    spent_ns, critical_ns, slowed_ns = (
        _of_places(facts, chosen) for chosen in (every, facts.pace.is_critical, slowed)
    )
    least_ns = spent_ns - slowed_ns + slowed_ns // _COLLECTIVE_SLOWDOWN
    result = (
        candidate
        for siblings in _families(facts)
        if len(siblings.places) >= outliers.MIN_SAMPLES
        for candidate in _outliers(facts, siblings, (spent_ns, critical_ns, least_ns))
    )
    return tuple(result)


def _families(facts: Facts) -> Iterator[_Siblings]:
    """Yield groups of equal layers: one list, and the same modules in each."""
    lists: dict[str, dict[str, list[int]]] = {}
    inside: dict[str, set[str]] = {}
    convolving = set[str]()
    for at, place in enumerate(facts.analysis.places):
        for family, layer, rest in _layers_of(place.module or ""):
            lists.setdefault(family, {}).setdefault(layer, []).append(at)
            inside.setdefault(layer, set()).add(f"{rest} {place.module_class}")
            convolving |= {family} if _CONVOLVES.search(place.aten_op or "") else set()
    for family, layers in lists.items():
        equal_call_ids: dict[frozenset[str], dict[str, list[int]]] = {}
        for layer, places in layers.items():
            equal_call_ids.setdefault(frozenset(inside[layer]), {})[layer] = places
        numbers = sorted(layers, key=lambda layer: int(layer.removeprefix(family)))
        for siblings in equal_call_ids.values():
            yield _Siblings(siblings, family in convolving, (numbers[0], numbers[-1]))


def _layers_of(module: str) -> Iterator[tuple[str, str, str]]:
    """Yield for each number in a path the list, the layer, and the path within it."""
    for result in _NUMBERED.finditer(module):
        yield module[: result.start(1)], module[: result.end(1)], module[result.end(1) :]


def _outliers(
    facts: Facts, siblings: _Siblings, of_places: tuple[events.Ints, events.Ints, events.Ints]
) -> Iterator[rule.Candidate]:
    spent_ns, critical_ns, least_ns = of_places
    layers = list(siblings.places)
    times = [_usual(spent_ns[places]) for places in siblings.places.values()]
    usual = median(times)
    for at in _outlier_layers(siblings, times):
        places = siblings.places[layers[at]]
        least = _usual(least_ns[places])
        if least > (1 + _BEYOND) * usual > 0:
            part = _usual(critical_ns[places]) / times[at]
            yield _candidate(
                facts, layers[at], siblings.places, (times[at], usual, (least - usual) * part)
            )


def _outlier_layers(siblings: _Siblings, times: Sequence[int]) -> list[int]:
    if not siblings.convolves:
        odd = outliers.outlier_indices(times, _BEYOND)
        is_kind = len(odd) >= _A_KIND and outliers.are_equal([times[at] for at in odd])
        return [] if is_kind else odd
    ends = [at for at, layer in enumerate(siblings.places) if layer in siblings.ends]
    return outliers.outlier_indices_of_equal_sizes(times, _BEYOND, ends)


def _candidate(
    facts: Facts, layer: str, siblings: Mapping[str, list[int]], times: tuple[int, float, float]
) -> rule.Candidate:
    time, usual, beyond_ns = times
    shares = facts.analysis.shares
    launches = np.unique(shares.launch[np.isin(shares.place, siblings[layer])])
    return rule.Candidate(
        summary=f"{layer} takes {time / usual:.1f} times as long as its siblings",
        est_saving_ns=int(beyond_ns),
        confidence=Confidence.ESTIMATED,
        remedy=("compare its kernels with a sibling's (explain): dtype, layout, hooks, shapes"),
        location=Location(module=layer),
        evidence=(
            Figure("it takes", time, FigureUnit.NS),
            Figure("the median of its siblings", usual, FigureUnit.NS),
            Figure("siblings", len(siblings)),
        ),
        launches=launches,
    )


def _of_places(facts: Facts, wanted: Rows) -> events.Ints:
    shares, launches = facts.analysis.shares, facts.launches
    numbers = {step.number: at for at, step in enumerate(facts.analysis.steps)}
    steps = np.array([numbers.get(each, -1) for each in launches.step.filled(-1).tolist()])
    chosen = (steps[shares.launch] >= 0) & wanted[shares.launch]
    key = shares.place[chosen], steps[shares.launch[chosen]]
    sizes = len(facts.analysis.places), len(facts.analysis.steps)
    return share_sums.sum_by(key, shares.duration_ns[chosen], *sizes)


def _usual(times: events.Ints) -> int:
    """Return the lower median over the steps of the time of some places."""
    of_steps = np.sort(times.sum(axis=0))
    return int(of_steps[(len(of_steps) - 1) // 2])


RULE = rule.Rule(
    name="unlike_siblings",
    title="A layer slower than its siblings",
    means="Of four or more numbered layers with the same modules in them (`layers.0`, `layers.1`, "
    "...) one takes at least half as long again as their median, and is an outlier of their "
    "spread. Three or more that take the same time, within a tenth, are layers of another kind by "
    "design, and not reported. In convolutional networks, sizes may change from layer to layer by "
    "design: such layers are judged only if all but one, or one in six, take the same time within "
    "a tenth, and the first and last layers never.",
    because="Equal layers take equal times. An outlier has another dtype, another layout, a hook, "
    "a badly chosen kernel, or more work than the others.",
    remedy="Compare its kernels with those of a sibling, line by line.",
    saving="Time beyond the median of its siblings, as far as its launches are on the critical "
    "path. Launches that overlap with a collective, which slows them, count half.",
    not_on_cpu="the launches ran on the CPU, whose times are not steady enough",
    judge=_judge,
)
