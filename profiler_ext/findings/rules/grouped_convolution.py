"""The rule for grouped convolutions that run a kernel for each group."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, SavingPer
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_CONVOLVES = re.compile(r"aten::(cudnn_convolution|convolution_backward)$")
# Kernels that convolve; cuDNN launches others around them, for layouts and paddings
_COMPUTES = re.compile(r"fprop|wgrad|dgrad|implicit_gemm|convolve|conv\dd_\w*kernel|gemm")
# By FFT there is a kernel for each tile, and by im2col, without cuDNN, one for each sample
_TILED = re.compile(r"fft|winograd|im2col|col2im|vol2col|col2vol", re.IGNORECASE)
_MIN_GROUPS = 4
_MIN_FRACTION = 0.03


@dataclass(frozen=True, slots=True)
class _Calls:
    """The calls of a line's convolutions that run a kernel for each group, and those that do not.

    A convolution, its gradient by the input and that by the weights do as many operations.
    """

    loops: Ints  # launches of the first: all that runs once for each group
    passes: int  # times in a step that they compute a whole convolution
    groups: int
    whole: Ints  # launches that compute the same for all groups at once


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    is_own = facts.launches.scope.where(Scope.EAGER) & (facts.main_place >= 0)
    is_own &= facts.launches.phase.where(Phase.FORWARD, Phase.BACKWARD)
    is_own &= facts.of_op(lambda op: _CONVOLVES.match(op) is not None)
    return _candidates(facts, np.flatnonzero(facts.in_steps(is_own)))


def _candidates(facts: Facts, rows: Ints) -> Iterator[Candidate]:
    for own in launches_by_line(facts, rows):
        calls = _calls(facts, own)
        if calls is None:
            continue
        spent_ns = facts.median_per_step(calls.loops, facts.pace.busy_ns[calls.loops])
        if spent_ns >= _MIN_FRACTION * facts.training.step_ns:
            yield _candidate(facts, calls, spent_ns)


def _calls(facts: Facts, rows: Ints) -> _Calls | None:
    """Return the calls of a line; none where no kernel runs for each group."""
    name = facts.launches.name
    computes, is_tiled = (
        np.array([each.search(text) is not None for text in name.strings], np.bool_)[name.codes]
        for each in (_COMPUTES, _TILED)
    )
    event = facts.launches.op_event[rows].filled(-1)
    order = np.argsort(event, kind="stable")
    rows = rows[order[event[order] >= 0]]
    firsts = np.unique(facts.launches.op_event[rows].filled(-1), return_index=True)[1]
    loops, whole, groups, passes = list[Ints](), list[Ints](), list[int](), 0
    for own in np.split(rows, firsts[1:]) if len(rows) else ():
        if is_tiled[own].any():
            continue
        kernels, counts = np.unique(name.codes[own], return_counts=True)
        count = {int(kernel): int(each) for kernel, each in zip(kernels, counts, strict=True)}
        times = np.array([count[int(each)] for each in name.codes[own]])
        in_loop = own[computes[own] & (times >= _MIN_GROUPS)]
        whole.append(own[computes[own] & (times == 1)])
        if not len(in_loop):
            continue
        number = min(count[int(each)] for each in name.codes[in_loop])
        groups.append(number)
        passes += len(in_loop) // number
        loops.append(own[times >= number])
    if not loops:
        return None
    usual = round(passes / max(len(facts.analysis.steps), 1))
    looping = np.concatenate(loops)
    return _Calls(looping, usual, int(np.median(groups)), _of_same(facts, looping, whole))


def _of_same(facts: Facts, launches: Ints, others: list[Ints]) -> Ints:
    """Return those of others that are of the same modules: other layers have other sizes."""
    modules = {facts.place(row).module for row in launches.tolist()}
    rows = np.concatenate(others)
    is_same = [facts.place(row).module in modules for row in rows.tolist()]
    same: Ints = rows[np.array(is_same, np.bool_)]
    return same


def _candidate(facts: Facts, calls: _Calls, spent_ns: int) -> Candidate:
    launches, saved_ns, evidence = calls.loops, 0, list[Figure]()
    if len(calls.whole):
        whole_ns = int(np.median(facts.launches.duration_ns[calls.whole]))
        saved_ns = _paced_ns(facts, launches, spent_ns) - calls.passes * whole_ns
        evidence = [Figure("all groups at once take", whole_ns, FigureUnit.NS)]
    is_known = saved_ns > 0
    return Candidate(
        summary="a grouped convolution runs a kernel for each group",
        est_saving_ns=max(saved_ns, 0),
        confidence=Confidence.ESTIMATED if is_known else Confidence.UPPER_BOUND,
        remedy="fewer groups; scale inputs and outputs where groups are samples' own weights",
        location=location_of(facts.place(facts.longest(launches))),
        evidence=(
            *count_and_time(facts, launches),
            Figure("side by side they take", spent_ns, FigureUnit.NS),
            Figure("groups", calls.groups),
            Figure("convolutions that they compute", calls.passes),
            *evidence,
        ),
        saving_per=SavingPer.STEP if is_known else SavingPer.UNKNOWN,
        launches=launches,
    )


def _paced_ns(facts: Facts, launches: Ints, spent_ns: int) -> int:
    """Return the part of their time for which the step waits."""
    duration_ns = facts.median_per_step(launches, facts.launches.duration_ns[launches])
    critical_ns = facts.median_per_step(launches, facts.critical_ns(launches))
    return int(spent_ns * min(critical_ns / max(duration_ns, 1), 1))


RULE = Rule(
    name="grouped_convolution",
    title="A grouped convolution that runs a kernel for each group",
    means="One call of a convolution, or of its backward, launches the same kernel four times or "
    "more, and at a line this takes 3% of a step or more. Convolutions that loop over tiles "
    "(FFT, Winograd) or samples (`im2col`, without cuDNN) are not judged.",
    because="For some sizes, dtypes and layouts cuDNN has no kernel for all groups at once, and "
    "runs one for each, with conversions of its layout. Each of them fills little of the device. "
    "So it is where each sample of a batch is a group of its own, to have weights of its own "
    "(the modulated convolutions of StyleGAN2, dynamic convolutions).",
    remedy="A modulated convolution is one convolution of the whole batch between two scalings: of "
    "its input by the style, and of its output by the norm of the weights "
    "(`conv2d(x * style) * norm`). For other groups use fewer of them, or `channels_last` with "
    "bfloat16.",
    saving="How long the device works for these launches, less what another call of the line took "
    "for all groups at once, for each convolution that they compute: a convolution, its gradient "
    "by the input and that by its weights do as many operations. Unknown where no call does.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
