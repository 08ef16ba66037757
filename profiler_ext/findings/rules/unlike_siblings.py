"""Owns the rule of a numbered layer that takes longer than its siblings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from statistics import median

import numpy as np

from profiler_ext.findings.collectives import beside_collectives
from profiler_ext.findings.facts import Facts, Lacking, Rows
from profiler_ext.findings.finding import Figure, FigureUnit, Sureness, Where
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.findings.siblings import FEWEST, standing_out
from profiler_ext.records import Ints

_BEYOND = 0.5
_SLOWED = 2
"""Beside a collective a product on an H200 took up to so many times as long as without it."""
_CONVOLVES = re.compile(r"\bconvolution|_convolution\b|conv\dd")
"""Layers of a CNN get images of other sizes by design, and more channels."""
_NUMBERED = re.compile(r"(?:^|\.)(\d+)(?=\.|$)")
_Siblings = Mapping[str, list[int]]
"""Path of a layer to the indices of the places in it."""


def _judge(facts: Facts) -> Iterable[Candidate] | Lacking:
    if not facts.on_device:
        return Lacking("the launches ran on the CPU, whose times are not steady enough")
    every, slowed = np.ones(len(facts.launches), np.bool_), beside_collectives(facts)
    spent_ns, paced_ns, slowed_ns = (
        _of_places(facts, chosen) for chosen in (every, facts.pace.sets, slowed)
    )
    least_ns = spent_ns - slowed_ns + slowed_ns // _SLOWED
    found = (
        candidate
        for siblings in _families(facts).values()
        if len(siblings) >= FEWEST
        for candidate in _unlike(facts, siblings, (spent_ns, paced_ns, least_ns))
    )
    return tuple(found)


def _families(facts: Facts) -> dict[tuple[str, frozenset[str]], dict[str, list[int]]]:
    """Return the layers that are alike: one list, and the same modules in each."""
    layers: dict[str, dict[str, list[int]]] = {}
    inside: dict[str, set[str]] = {}
    convolving = set[str]()
    for at, place in enumerate(facts.analysis.places):
        for family, layer, rest in _layers_of(place.module or ""):
            layers.setdefault(family, {}).setdefault(layer, []).append(at)
            inside.setdefault(layer, set()).add(f"{rest} {place.module_class}")
            convolving |= {family} if _CONVOLVES.search(place.aten_op or "") else set()
    families: dict[tuple[str, frozenset[str]], dict[str, list[int]]] = {}
    for family, of_family in layers.items():
        if family in convolving:
            continue
        for layer, places in of_family.items():
            families.setdefault((family, frozenset(inside[layer])), {})[layer] = places
    return families


def _layers_of(module: str) -> Iterator[tuple[str, str, str]]:
    """Yield for each number in a path the list of layers, the layer, and the path within it."""
    for found in _NUMBERED.finditer(module):
        yield module[: found.start(1)], module[: found.end(1)], module[found.end(1) :]


def _unlike(
    facts: Facts, siblings: _Siblings, of_places: tuple[Ints, Ints, Ints]
) -> Iterator[Candidate]:
    spent_ns, paced_ns, least_ns = of_places
    layers = list(siblings)
    times = [_usual(spent_ns[places]) for places in siblings.values()]
    usual = median(times)
    for at in standing_out(times, _BEYOND):
        places = siblings[layers[at]]
        least = _usual(least_ns[places])
        if least > (1 + _BEYOND) * usual > 0:
            part = _usual(paced_ns[places]) / times[at]
            yield _candidate(
                facts, layers[at], siblings, (times[at], usual, (least - usual) * part)
            )


def _candidate(
    facts: Facts, layer: str, siblings: _Siblings, times: tuple[int, float, float]
) -> Candidate:
    time, usual, beyond_ns = times
    shares = facts.analysis.shares
    launches = np.unique(shares.launch[np.isin(shares.place, siblings[layer])])
    return Candidate(
        what=f"{layer} takes {time / usual:.1f} times as long as its siblings",
        at_stake_ns=int(beyond_ns),
        sureness=Sureness.ESTIMATED,
        remedy="compare its kernels with a sibling's: by_line() and by_kernel(); look at its "
        "dtype, its layout, hooks on it, and what shapes it gets",
        where=Where(module=layer),
        why=(
            Figure("it takes", time, FigureUnit.NS),
            Figure("the median of its siblings", usual, FigureUnit.NS),
            Figure("siblings", len(siblings)),
        ),
        launches=launches,
    )


def _of_places(facts: Facts, wanted: Rows) -> Ints:
    """Return the time of each place in each step, of some launches."""
    shares, launches = facts.analysis.shares, facts.launches
    numbers = {step.number: at for at, step in enumerate(facts.analysis.steps)}
    steps = np.array([numbers.get(each, -1) for each in launches.step.filled(-1).tolist()])
    chosen = (steps[shares.launch] >= 0) & wanted[shares.launch]
    times = np.zeros((len(facts.analysis.places), len(facts.analysis.steps)), np.int64)
    at = (shares.place[chosen], steps[shares.launch[chosen]])
    np.add.at(times, at, shares.duration_ns[chosen])
    return times


def _usual(times: Ints) -> int:
    """Return the lower median over the steps of the time of some places."""
    of_steps = np.sort(times.sum(axis=0))
    return int(of_steps[(len(of_steps) - 1) // 2])


RULE = Rule(
    name="unlike_siblings",
    title="A layer unlike its siblings",
    means="Of four or more numbered layers with the same modules in them (`layers.0`, `layers.1`, "
    "...) one takes half as long again as their median, or more, and stands out from what they "
    "differ by. Lists in which convolutions run are not judged: their sizes change from layer to "
    "layer by design.",
    because="Equal layers take equal times. One that does not has another dtype, another layout, a "
    "hook, a kernel that was chosen badly, or more work than the others.",
    remedy="Compare its kernels with those of a sibling, line by line.",
    stake="What it takes beyond the median of its siblings, as far as its launches set the pace. "
    "What ran beside a collective of another rank, which slows it, counts half.",
    judge=_judge,
)
