"""The rule for biases that the batch norm after them takes away again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, launching
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_LAYER = re.compile(r"aten::(conv|_convolution|convolution|linear|addmm)")
_NORM = re.compile(r"aten::(\w*batch_norm|instance_norm)$")
# Of batch norms those that take the mean of the batch, which has the bias in it
_OF_BATCH = re.compile(r"batch_norm_collect_statistics|bn_fw_tr|batchnorm_fwtr|welford", re.I)
_ADDS = "aten::add_"
_SUMS = "aten::sum"
_Layer = tuple[str | None, int | None, str | None]


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    layers = set(_layers_before_norms(facts))
    eager = np.flatnonzero(facts.in_steps(facts.launches.scope.where(Scope.EAGER)))
    own = eager[[_layer(facts, launch) in layers for launch in eager.tolist()]]
    phase = facts.launches.phase
    adds = own[(facts.of_op(_ADDS.__eq__) & phase.where(Phase.FORWARD))[own]]
    sums = own[(facts.of_op(_SUMS.__eq__) & phase.where(Phase.BACKWARD))[own]]
    if not len(sums):  # without a gradient it is a constant, and folding it is another matter
        return ()
    return (_candidate(facts, adds, sums),)


def _layer(facts: Facts, launch: int) -> _Layer:
    place = facts.place(launch)
    return place.file, place.line, place.module


def _layers_before_norms(facts: Facts) -> Iterator[_Layer]:
    """Yield the convolutions and linear layers whose result a batch norm reads first."""
    before: list[int] = []
    for run in _runs(facts):
        if any(_NORM.match(facts.place(row).aten_op or "") for row in run):
            is_layer = any(_LAYER.match(facts.place(row).aten_op or "") for row in before)
            names = (facts.launches.name[row] for row in run)
            if is_layer and any(map(_OF_BATCH.search, names)):
                yield _layer(facts, before[0])
        before = run


def _runs(facts: Facts) -> Iterator[list[int]]:
    """Yield the forward's launches, in order: those of one layer after the other."""
    launches = facts.launches
    is_eager = launches.scope.where(Scope.EAGER) & launches.phase.where(Phase.FORWARD)
    rows = np.flatnonzero(facts.in_steps(is_eager))
    order = np.lexsort((launches.start_ns[rows], launches.stream.filled(-1)[rows]))
    run: list[int] = []
    for row in rows[order].tolist():
        if run and _layer(facts, row) != _layer(facts, run[0]):
            yield run
            run = []
        run.append(row)
    yield run


def _candidate(facts: Facts, adds: Ints, sums: Ints) -> Candidate:
    launches = np.sort(np.concatenate([adds, sums]))
    removal_saving_ns = facts.median_per_step(launches, facts.removal_saving_ns(launches))
    times = ((adds, "adding them takes"), (sums, "their gradients take"))
    layers = len({_layer(facts, launch) for launch in sums.tolist()})
    return Candidate(
        summary="biases before batch norms, which subtract them again",
        est_saving_ns=removal_saving_ns,
        confidence=Confidence.MEASURED,
        remedy="bias=False in the layers before batch norms",
        location=location_of(facts.place(facts.longest(launches))),
        evidence=(
            Figure("layers", layers),
            *(
                Figure(
                    name,
                    facts.median_per_step(own, facts.launches.duration_ns[own]),
                    FigureUnit.NS,
                )
                for own, name in times
            ),
            *launching(facts, launches, removal_saving_ns),
        ),
        launches=launches,
    )


RULE = Rule(
    name="bias_before_norm",
    title="Biases before a batch norm",
    means="An eager convolution or linear layer adds a bias, or sums the bias's gradient, and the "
    "next launch is a batch norm with the statistics of the batch.",
    because="The batch norm subtracts each channel's mean, and the bias with it. The result does "
    "not depend on the bias, and its gradient is zero but for rounding. Adding it passes over the "
    "activations once more, and so does summing its gradient.",
    remedy="`bias=False` in `nn.Conv2d` or `nn.Linear` directly before `nn.BatchNorm`. The norm "
    "has a bias of its own. A checkpoint that has such biases can be loaded with them left out "
    "if they are subtracted from the norm's running means.",
    saving="Time of the launches that add the biases and sum their gradients, or of launching "
    "them if the CPU is behind. Compiled layers add them within other kernels and are not judged.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
