"""The rule for layers in training mode in inference."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, removal
from profiler_ext.records.vocabulary import Phase, Scope

_LEARNS = (Phase.BACKWARD, Phase.RECOMPUTE, Phase.GRADIENT_ACCUMULATION, Phase.OPTIMIZER)
_STATISTICS = "batch_norm_collect_statistics"


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if facts.launches.phase.where(*_LEARNS).any():
        return ()
    is_training = facts.of_op(lambda op: "dropout" in op)
    is_training |= facts.named(lambda name: _STATISTICS in name)
    is_training &= facts.launches.scope.where(Scope.EAGER) & (facts.main_place >= 0)
    own = np.flatnonzero(facts.in_steps(is_training))
    if not len(own):
        return ()
    summary = "layers are in training mode, and nothing is trained"
    remedy = "model.eval() first, unless dropout samples on purpose (Monte Carlo)"
    return (removal(facts, own, summary, remedy),)


RULE = Rule(
    name="training_mode",
    title="Training mode in inference",
    means="No step of the recording has a backward or an optimizer, and eager layers run dropout "
    "or compute the statistics of their batch for a batch norm.",
    because="A module is in training mode until `eval()` is called, and `torch.no_grad()` does not "
    "change that. The results are those of training as well: random, and other ones in each batch.",
    remedy="`model.eval()`. For functions of your own: `F.dropout(x, p, training=self.training)`.",
    saving="Time of these launches, or of launching them if the CPU is behind. Batch norms that "
    "use their running statistics take less, which is not counted.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
