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
_KINDS = (MemoryKind.SAVED, MemoryKind.TEMPORARIES, MemoryKind.HELD, MemoryKind.OTHER)
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
    return (
        MemoryFinding(
            summary="autocast keeps copies of float32 weights from the forward to the backward",
            predicted_peak_bytes=facts.peak_without(found.change),
            extra_ns=_extra_ns(facts, found),
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
        own = [each for each in casts if weight.is_of(each.module) and each not in copies
               and rounds_to(weight.held_bytes // 2, each.size_bytes)]  # fmt: skip
        if own:
            weights.append(weight)
            # An input may be as large, and is cast before the weight; autocast casts that once
            copies += {facts.step_of(each.born): each for each in own}.values()
    return _Copies(tuple(copies), tuple(weights), tuple(_halved(facts, weights)))


def _halved(facts: MemoryFacts, weights: Sequence[Allocation]) -> Iterable[Allocation]:
    """Yield the weights, with their gradients and states: blocks of the same size and module."""
    sizes = {(each.module, each.held_bytes) for each in weights}
    for owned in facts.of_kind(*_OWNED):
        if (owned.module, owned.held_bytes) in sizes:
            yield owned


def _extra_ns(facts: MemoryFacts, found: _Copies) -> int | None:
    """Return the time of the casts, and half of the optimizer's for these weights, below 0."""
    times, modules = facts.times, {each.module for each in found.copies}
    is_cast = times.of_op(lambda op: op.startswith(_CASTS) or op == "aten::copy_")
    is_cast &= times.mainly(lambda place: place.module in modules)
    is_cast &= times.launches.phase.where(Phase.FORWARD, Phase.BACKWARD)
    casts_ns = facts.price_ns(np.flatnonzero(times.in_steps(is_cast)), -1)
    # Of the casts in these modules some are of activations, which stay: 4 + 2 bytes each way
    weights_bytes = sum(each.size_bytes for each in found.weights)
    moved_ns = facts.moving_ns(3 * weights_bytes)
    every = sum(each.size_bytes for each in facts.of_kind(MemoryKind.PARAMETERS))
    optimizer = np.flatnonzero(times.in_steps(times.launches.phase.where(Phase.OPTIMIZER)))
    halved_ns = facts.price_ns(optimizer, -weights_bytes / (2 * max(every, 1)))
    if casts_ns is None or halved_ns is None:
        return None
    return (max(casts_ns, -moved_ns) if moved_ns else casts_ns) + halved_ns


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
