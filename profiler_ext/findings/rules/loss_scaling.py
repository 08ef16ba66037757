"""The rule for losses that are scaled in bfloat16, which needs no scaling."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, removal
from profiler_ext.rooflines.compute_units import Unit

_UNSCALES = frozenset(
    {"aten::_amp_foreach_non_finite_check_and_unscale_", "aten::_amp_update_scale_"}
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    unscales = np.flatnonzero(facts.in_steps(facts.of_op(_UNSCALES.__contains__)))
    in_half, in_bfloat = (
        facts.in_steps(facts.rooflines.unit.where(unit)).any()
        for unit in (Unit.FP16_TENSOR, Unit.BF16_TENSOR)
    )
    if not len(unscales) or in_half or not in_bfloat:
        return ()
    summary = "the loss is scaled, which bfloat16 does not need"
    remedy = "leave torch.amp.GradScaler out, or GradScaler(enabled=False)"
    return (removal(facts, unscales, summary, remedy),)


RULE = Rule(
    name="loss_scaling",
    title="Loss scaling in bfloat16",
    means="A `GradScaler` unscales all gradients and checks them, in a step whose products run in "
    "bfloat16 and none in float16.",
    because="Small gradients vanish in float16, so its loss is multiplied first and the gradients "
    "are divided again. Bfloat16 has the range of float32: nothing vanishes. The scaler reads and "
    "writes all gradients once more, and waits for the device to learn whether one is infinite.",
    remedy="Call `loss.backward()` and `optimizer.step()` without the scaler.",
    saving="Time of the launches that unscale, or of launching them if the CPU is behind. The wait "
    "for the check is that of the rule of synchronisations.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
