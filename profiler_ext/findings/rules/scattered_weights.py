"""The rule for RNNs whose weights are copied together in each call."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, enclosing
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, removal
from profiler_ext.records.vocabulary import Scope

_CALLS = ("aten::_cudnn_rnn", "aten::miopen_rnn")
_COPIES = "aten::copy_"
_MIN_COPIES = 4  # a layer has two weights and two biases


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    events, op = facts.analysis.recording.trace.events, facts.launches.op_event
    is_copy = facts.of_op(_COPIES.__eq__) & facts.launches.scope.where(Scope.EAGER)
    rows = np.flatnonzero(facts.in_steps(is_copy & ~np.ma.getmaskarray(op)))
    around = enclosing(events, op[rows].filled(0).astype(np.int64), _CALLS.__contains__)
    rows = rows[np.isin(events.name.codes[around], _codes(facts))]
    if facts.launches_per_step(rows) < _MIN_COPIES:
        return ()
    summary = "an RNN copies its weights into one block of memory in each call"
    remedy = "rnn.flatten_parameters(), after its weights are moved or replaced"
    return (removal(facts, rows, summary, remedy),)


def _codes(facts: Facts) -> list[int]:
    strings = facts.analysis.recording.trace.events.name.strings
    return [code for code, name in enumerate(strings) if name in _CALLS]


RULE = Rule(
    name="scattered_weights",
    title="RNNs whose weights are not in one block",
    means="Calls of cuDNN's RNN copy weights, four or more a step.",
    because="cuDNN takes all weights of an RNN in one block of memory. `nn.LSTM` and `nn.GRU` make "
    "it when they are created. Weights that are replaced, shared or computed (`weight_norm`) lie "
    "apart; torch warns once, and copies them in each call.",
    remedy="`rnn.flatten_parameters()` once, after the weights have changed place.",
    saving="Time of these copies, or of launching them if the CPU is behind.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
