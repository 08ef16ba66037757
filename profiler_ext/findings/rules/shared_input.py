"""The rule for layers that multiply the same input one after the other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from profiler_ext.findings.code_of_lines import calls_of_one_input
from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, Location
from profiler_ext.findings.lines_of_functions import functions_of
from profiler_ext.findings.rule import Candidate, Rule, count_and_time
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_LINEAR = "aten::linear"
_MULTIPLIES = re.compile(r"aten::(?:add)?mm$|aten::(?:bad?d?)?bmm$|aten::matmul$|aten::linear$")
_SHORT_NS = 10_000  # longer kernels fill the device, and take as long in one product
_SPLITTING = 0.25  # of what a layer costs the CPU: the views of a product's parts


@dataclass(frozen=True, slots=True)
class _Layers:
    """Layers of one input, and the launches of all and of those that could be left out."""

    where: Location
    names: tuple[str, ...]
    launches: Ints
    others: Ints


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    return [_candidate(facts, each) for each in _layers(facts)]


def _layers(facts: Facts) -> Iterator[_Layers]:
    table = facts.launches
    is_own = table.scope.where(Scope.EAGER) & table.phase.where(Phase.FORWARD, Phase.OTHER)
    is_own &= facts.mainly(lambda place: place.aten_op == _LINEAR and place.module is not None)
    products = np.flatnonzero(facts.in_steps(is_own))
    by_line: dict[tuple[str | None, str | None, int | None, str], list[int]] = {}
    for row in products.tolist():
        place = facts.place(row)
        name = (place.module or "").rpartition(".")[2]
        by_line.setdefault((place.file, place.function, place.line, name), []).append(row)
    for (file, function), codes in functions_of(facts).items():
        for calls in calls_of_one_input(codes):
            # Norms may read the same
            linear = {
                (name, line): np.array(rows, np.int64)
                for name, line in calls
                if (rows := by_line.get((file, function, line, name)))
            }
            own = list(linear.values())
            if len(own) > 1 and _are_of_siblings(facts, own):
                line = min(line for _, line in linear)
                names = tuple(name for name, _ in linear)
                where = Location(file, line, codes[line])
                yield _Layers(where, names, np.concatenate(own), np.concatenate(own[1:]))


def _are_of_siblings(facts: Facts, layers: list[Ints]) -> bool:
    """Tell whether each layer is a part of the same modules as the first, and has its products."""
    parents = [
        {(facts.place(row).module or "").rpartition(".")[0] for row in own.tolist()}
        for own in layers
    ]
    is_product = [
        [_MULTIPLIES.match(facts.innermost_op(row)) is not None for row in own.tolist()]
        for own in layers
    ]
    return all(each == parents[0] for each in parents) and all(map(any, is_product))


def _candidate(facts: Facts, layers: _Layers) -> Candidate:
    others, duration_ns = layers.others, facts.launches.duration_ns
    if facts.pace.is_critical[others].all():
        short = others[duration_ns[others] < _SHORT_NS]
        saved_ns = facts.median_per_step(short, duration_ns[short]) // 2
    else:
        saved_ns = int((1 - _SPLITTING) * facts.removed_per_step_ns(others))
    names = ", ".join(layers.names)
    return Candidate(
        summary=f"{len(layers.names)} layers multiply the same input one by one",
        est_saving_ns=saved_ns,
        confidence=Confidence.ESTIMATED,
        remedy="one layer with all of their outputs, and split() of its result",
        location=layers.where,
        evidence=(
            *count_and_time(facts, layers.launches),
            Figure("layers", names, FigureUnit.TEXT),
        ),
        launches=others,
    )


RULE = Rule(
    name="shared_input",
    title="Layers of one input, one by one",
    means="A function calls two or more linear layers of its module with the same argument, by "
    "its text (`self.query(x)`, `self.key(x)`, `self.value(x)`; `self.gate(x)`, `self.up(x)`), "
    "and their products are too short to fill the device, or the step waits for their launches.",
    because="Each layer reads the whole input again and costs the CPU a launch with its Python, "
    "forward and twice in the backward. One product with all rows of their weights computes the "
    "same.",
    remedy="One `nn.Linear` with the sum of the outputs and `split` or `chunk` of its result: "
    "checkpoints are joined by `torch.cat` of the weights. In diffusers `fuse_qkv_projections()`.",
    saving="Three quarters of how much shorter the step would be in a replay without all but the "
    "first of them, the rest is for the views; of kernels below 10 us that set the pace half of "
    "their time. Of longer kernels nothing is claimed, nor is their backward.",
    not_on_cpu="the launches ran on the CPU, which waits for no launch",
    judge=_judge,
)
