"""The rule for weights in float32 of which autocast keeps a copy in lower precision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.findings.facts import CannotJudge, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.memory.births import rounds_to
from profiler_ext.memory.pricing import Allocation, MemoryFacts, Remedied, largest
from profiler_ext.memory.recommendations import MemoryFinding, MemoryRule
from profiler_ext.records.memory import MemoryKind
from profiler_ext.records.vocabulary import Phase

_CASTS = ("aten::to", "aten::_to_copy", "aten._to_copy")
_KINDS = (MemoryKind.SAVED, MemoryKind.TEMPORARIES, MemoryKind.OTHER)
_OWNED = (MemoryKind.PARAMETERS, MemoryKind.GRADIENTS, MemoryKind.OPTIMIZER)
_MIN_BYTES = 1 << 20  # below this the sizes of blocks tell too little


@dataclass(frozen=True, slots=True)
class _Copies:
    """Copies of weights, and what has a weight's size for each of them."""

    copies: tuple[Allocation, ...]
    weights: tuple[Allocation, ...]
    halved: tuple[Allocation, ...]  # weights, gradients and states

    def change(self, remedied: Remedied) -> None:
        for each in self.copies:
            remedied.remove(each)
        for each in self.halved:
            remedied.shrink(each, each.size_bytes // 2)


def _judge(facts: MemoryFacts) -> Iterable[MemoryFinding] | CannotJudge:
    found = _copies(facts)
    where = largest(found.copies)
    if where is None:
        return ()
    weights_bytes = sum(each.size_bytes for each in found.weights)
    return (
        MemoryFinding(
            summary="autocast keeps copies of float32 weights from the forward to the backward",
            predicted_peak_bytes=facts.peak_without(found.change),
            extra_ns=-_casting_ns(facts) + _optimizer_ns(facts, weights_bytes),
            confidence=Confidence.ESTIMATED,
            remedy="these modules' parameters in bfloat16 (module.to(torch.bfloat16)), with an "
            "optimizer that rounds stochastically (torchao.optim._AdamW, bf16_stochastic_round)",
            location=location_of(where.block.place),
            evidence=(
                Figure("weights", len(found.weights)),
                Figure("copies at the peak", facts.at_peak(found.copies), FigureUnit.BYTES),
                Figure("parameters, gradients and states of these weights at the peak",
                       facts.at_peak(found.halved), FigureUnit.BYTES),
            ),
        ),
    )  # fmt: skip


def _copies(facts: MemoryFacts) -> _Copies:
    parameters = {each for each in facts.of_kind(MemoryKind.PARAMETERS)
                  if each.size_bytes >= _MIN_BYTES}  # fmt: skip
    casts = [each for each in facts.of_kind(*_KINDS) if each.phase is Phase.FORWARD
             and facts.is_allocated_by(each, _CASTS)]  # fmt: skip
    copies: list[Allocation] = []
    weights: list[Allocation] = []
    for weight in sorted(parameters, key=lambda each: (each.module, each.size_bytes, each.born)):
        own = [each for each in casts if each.module == weight.module and each not in copies
               and rounds_to(weight.held_bytes // 2, each.size_bytes)]  # fmt: skip
        if own:
            weights.append(weight)
            copies += own
    return _Copies(tuple(copies), tuple(weights), tuple(_halved(facts, weights)))


def _halved(facts: MemoryFacts, weights: Sequence[Allocation]) -> Iterable[Allocation]:
    """Yield the weights, with their gradients and states: blocks of the same size and module."""
    sizes = {(each.module, each.held_bytes) for each in weights}
    for owned in facts.of_kind(*_OWNED):
        if (owned.module, owned.held_bytes) in sizes:
            yield owned


def _casting_ns(facts: MemoryFacts) -> int:
    """Return the time of the casts of weights: launches by ops that cast, in these modules."""
    times = facts.times
    own = {(each.module) for each in _copies(facts).weights}
    is_cast = times.of_op(lambda op: op.startswith(_CASTS) or op == "aten::copy_")
    is_cast &= times.mainly(lambda place: place.module in own)
    forward = times.launches.phase.where(Phase.FORWARD, Phase.BACKWARD)
    rows = np.flatnonzero(times.in_steps(is_cast & forward))
    # Of the casts in these modules some are of activations, which stay: 4 + 2 bytes each way
    weights_bytes = sum(each.size_bytes for each in _copies(facts).weights)
    moved_ns, spent_ns = facts.moving_ns(3 * weights_bytes), -facts.price_ns(rows, -1)
    return min(spent_ns, moved_ns) if moved_ns else spent_ns


def _optimizer_ns(facts: MemoryFacts, weights_bytes: int) -> int:
    """Return what half of the optimizer's time for these weights is, below 0."""
    every = sum(each.size_bytes for each in facts.of_kind(MemoryKind.PARAMETERS))
    own = facts.times.launches.phase.where(Phase.OPTIMIZER)
    rows = np.flatnonzero(facts.times.in_steps(own))
    return facts.price_ns(rows, -weights_bytes / (2 * max(every, 1)))


RULE = MemoryRule(
    name="weight_copies",
    title="Copies of weights under autocast",
    means="Weights are float32, and each has a copy in bfloat16 or float16 from the forward to the "
    "backward.",
    because="`torch.autocast` converts weights where they are used, and autograd keeps the copy "
    "for the backward.",
    remedy="Keep the parameters of these modules in bfloat16. Their gradients and an optimizer's "
    "states are bfloat16 then, too, so take an optimizer that rounds stochastically, or keeps "
    "float32 copies; with the latter only the gradients become smaller.",
    price="The peak is that of the recorded timeline without the copies, and with these weights, "
    "their gradients and their states in half the bytes. Time is that of the casts, and half of "
    "the optimizer's time for these weights: it is saved.",
    judge=_judge,
)
