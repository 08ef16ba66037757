"""The rule for Adam in many passes over the parameters, where a fused kernel needs one."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import Confidence, Figure
from profiler_ext.findings.groups import ops_of
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_PREFIX = "aten::_foreach_"
# How often each op reads or writes as many bytes as the parameters have
_PASSES = {
    "add_": 2,
    "addcdiv_": 4,
    "addcmul_": 4,
    "div_": 2,
    "lerp_": 3,
    "maximum_": 3,
    "mul_": 2,
    "sqrt": 2,
    "sqrt_": 2,
    "sub_": 2,
}
# NAdam, RAdam, Adamax and SparseAdam have none
_STEPS = re.compile(r"Optimizer\.step#(\w+)\.step")
_FUSED = re.compile(r"^(?!.*(?:NAdam|RAdam|Adamax|SparseAdam)).*Adam")
# What only Adam and its variants do
_OF_ADAM = frozenset({"addcdiv_", "addcmul_"})
# The fused kernel reads the parameters, their gradients and two moments, and writes all but the
# gradients
_FUSED_PASSES = 7


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    launches = facts.launches
    is_own = launches.phase.where(Phase.OPTIMIZER) & launches.scope.where(Scope.EAGER)
    is_own &= facts.of_op(lambda op: op.removeprefix(_PREFIX) in _PASSES)
    rows = np.flatnonzero(facts.in_steps(is_own & facts.of_op(_is_foreach)))
    ops = {facts.innermost_op(row).removeprefix(_PREFIX) for row in rows.tolist()}
    if not ops >= _OF_ADAM or not _may_be_fused(facts):
        return ()
    # Each kernel has as many parameters as it takes: passes are counted by ops, not by launches
    passes = sum(_PASSES[op] for op in ops)
    gone = max(1 - _FUSED_PASSES / passes, 0)
    saved_ns = facts.median_per_step(rows, facts.critical_ns(rows, gone))
    summary = "Adam passes over the parameters once for each operation"
    others = _others(facts, rows)
    if not facts.pace.is_critical[others].all():
        launching_ns = facts.removed_per_step_ns(others)
        if launching_ns > saved_ns:
            summary = "CPU launch-bound: Adam calls an op on lists for each operation"
            saved_ns = launching_ns
    return (
        Candidate(
            summary=summary,
            est_saving_ns=saved_ns,
            confidence=Confidence.ESTIMATED,
            remedy="fused=True in the optimizer",
            location=location_of(facts.place(facts.longest(rows))),
            evidence=(
                *count_and_time(facts, rows),
                Figure("passes over the parameters", passes),
                Figure("passes of the fused kernel", _FUSED_PASSES),
            ),
            launches=rows,
        ),
    )


def _others(facts: Facts, rows: Ints) -> Ints:
    """Return the launches that a fused op has not: all but one op's, and the first of a step."""
    called, table = ops_of(facts, rows), facts.launches
    is_kept = called.codes == np.bincount(called.codes, minlength=1).argmax()
    order = np.argsort(table.start_ns[rows], kind="stable")
    first = np.unique(table.step[rows[order]].filled(-1), return_index=True)[1]
    is_kept[order[first]] = True
    others: Ints = rows[~is_kept]
    return others


def _may_be_fused(facts: Facts) -> bool:
    """Tell whether an optimizer has a fused kernel, by its class where that is recorded."""
    names = facts.analysis.recording.trace.events.name.strings
    known = {match[1] for match in map(_STEPS.match, names) if match}
    return not known or any(_FUSED.search(each) for each in known)


def _is_foreach(op: str) -> bool:
    return op.startswith(_PREFIX)


RULE = Rule(
    name="foreach_optimizer",
    title="Adam in many passes",
    means="Eager Adam or AdamW runs as `_foreach_` ops, each of which reads and writes all "
    "parameters or moments, and the step waits for them or for their launches.",
    because="`foreach` is torch's default: it merges launches, but not what they do. The fused "
    "kernel reads parameters, gradients and moments once and writes them once.",
    remedy="`torch.optim.AdamW(..., fused=True)`, or a compiled `optimizer.step`.",
    saving="The part of the launches' time on the critical path by which the fused kernel passes "
    "over the parameters less often: 7 times, where the ops of the recording pass over them 15 "
    "times and more. All of them are bound by memory. Or, if that is more, how much shorter the "
    "step would be in a replay without the launches of all of these ops but one.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
