"""The rule for layers in training mode in inference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, removal
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_LEARNS = (Phase.BACKWARD, Phase.RECOMPUTE, Phase.GRADIENT_ACCUMULATION, Phase.OPTIMIZER)
_STATISTICS = "batch_norm_collect_statistics"
# cuDNN's attention is given a state of random numbers where it drops scores, and only there
_SEEDS: Final = "unpack_cudnn"
# It draws a number for each score: on an H200 a forward then takes 1.9 to 2.6 times as long (ten
# shapes, heads of 64 and 128, 256 to 2,048 words, causal or not)
_DRAWING: Final = 0.5


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if facts.launches.phase.where(*_LEARNS).any():
        return ()
    is_training = facts.of_op(lambda op: "dropout" in op)
    is_training |= facts.named(lambda name: _STATISTICS in name or _SEEDS in name)
    is_training &= facts.launches.scope.where(Scope.EAGER) & (facts.main_place >= 0)
    own = np.flatnonzero(facts.in_steps(is_training))
    if not len(own):
        return ()
    summary = "layers are in training mode, and nothing is trained"
    remedy = "model.eval() first, unless dropout samples on purpose (Monte Carlo)"
    removed = removal(facts, own, summary, remedy)
    drops = np.setdiff1d(_attention_with_dropout(facts, own), own)
    if not len(drops):
        return (removed,)
    drawn_ns = facts.median_per_step(drops, facts.critical_ns(drops, _DRAWING))
    took_ns = facts.median_per_step(drops, facts.launches.duration_ns[drops])
    with_attention = replace(
        removed,
        est_saving_ns=removed.est_saving_ns + drawn_ns,
        confidence=Confidence.ESTIMATED,
        evidence=(*removed.evidence, Figure("attention with dropout", took_ns, FigureUnit.NS)),
        launches=np.union1d(own, drops),
    )
    return (with_attention,)


def _attention_with_dropout(facts: Facts, own: Ints) -> Ints:
    """Return the launches of the calls of attention that are given random numbers."""
    seeds = facts.called_ops(own[facts.named(lambda name: _SEEDS in name)[own]])
    if not len(seeds):
        return seeds
    calls = facts.called_ops(np.arange(len(facts.launches)))
    return np.flatnonzero(np.isin(calls, seeds[seeds >= 0]))


RULE = Rule(
    name="training_mode",
    title="Training mode in inference",
    means="No step of the recording has a backward or an optimizer, and eager layers run dropout "
    "or compute the statistics of their batch for a batch norm.",
    because="A module is in training mode until `eval()` is called, and `torch.no_grad()` does not "
    "change that. The results are those of training as well: random, and other ones in each batch.",
    remedy="`model.eval()`. For functions of your own: `F.dropout(x, p, training=self.training)`.",
    saving="Time of these launches, or of launching them if the CPU is behind. Of cuDNN's "
    "attention with dropout, which the launch of its seeds shows, one half: a forward took 1.9 "
    "to 2.6 times as long as without, for the random number of each score. Of other attention "
    "nothing is counted, nor that batch norms take less that use their running statistics.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
