"""The rule for a loss that holds several copies of the logits of a large vocabulary at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.findings.facts import CannotJudge, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.memory.births import rounds_to
from profiler_ext.memory.pricing import Allocation, MemoryFacts, Remedied
from profiler_ext.memory.recommendations import MemoryFinding, MemoryRule
from profiler_ext.records.events import Ints
from profiler_ext.records.memory import MemoryKind
from profiler_ext.records.vocabulary import Phase

_IS_LOSS = re.compile(r"log_softmax|cross_entropy|nll_loss")
_PROJECTS = re.compile(r"aten[:.]+(linear|mm|addmm|matmul|bmm)\b")
_SAME = 0.9  # a block is as large as the logits from here on
_CHUNKS = (2, 4, 8, 16)
_NEAR = 1.02  # of the peak with most chunks
_BACKWARD = (Phase.BACKWARD, Phase.GRADIENT_ACCUMULATION)
# How often a gradient is read or written when another is added to it
_PASSES_OF_SUM = 3


@dataclass(frozen=True, slots=True)
class _Loss:
    """The logits of a step, and what is as large until their backward is over."""

    logits: Allocation
    copies: tuple[Allocation, ...]  # with the logits
    repeated: Ints  # launches of the forward from the projection on
    weight_bytes: int  # of the projection's gradient
    backward: tuple[int, int]  # events between which its backward is

    def change(self, remedied: Remedied, chunks: int) -> None:
        """Hold one chunk at a time, and the sum of the weight's gradients beside it."""
        for each in self.copies:
            remedied.shrink(each, each.size_bytes // chunks)
        remedied.add(self.weight_bytes, *self.backward)


def _judge(facts: MemoryFacts) -> Iterable[MemoryFinding] | CannotJudge:
    losses = [loss for at in range(len(facts.step_bounds)) for loss in _losses(facts, at)]
    if not losses:
        return ()
    predicted = {count: facts.peak_without(_chunked(losses, count)) for count in _CHUNKS}
    chunks = next(n for n in _CHUNKS if predicted[n] <= _NEAR * predicted[_CHUNKS[-1]])
    first = losses[0]
    place, copies = first.logits.block.place, first.copies
    return (
        MemoryFinding(
            summary="the loss holds several copies of the logits at once",
            predicted_peak_bytes=predicted[chunks],
            extra_ns=_price_ns(facts, losses, chunks),
            confidence=Confidence.ESTIMATED,
            remedy=f"projection and loss in {chunks} chunks of tokens, each in "
            "torch.utils.checkpoint.checkpoint(..., use_reentrant=False), or a fused linear "
            "cross entropy",
            location=location_of(place),
            evidence=(
                Figure("the logits", first.logits.size_bytes, FigureUnit.BYTES),
                Figure("copies a step", len(copies)),
                Figure("of these at the peak", facts.at_peak(
                    allocation for loss in losses for allocation in loss.copies), FigureUnit.BYTES),
                Figure("chunks", chunks),
                *facts.time_of(np.concatenate([each.repeated for each in losses]), chunks),
            ),
        ),
    )  # fmt: skip


def _chunked(losses: Sequence[_Loss], chunks: int) -> Callable[[Remedied], None]:
    def change(remedied: Remedied) -> None:
        for each in losses:
            each.change(remedied, chunks)

    return change


def _losses(facts: MemoryFacts, position: int) -> Iterable[_Loss]:
    """Yield the loss of a step, if it has one whose logits are known."""
    step, enqueued_ns = facts.analysis.steps[position].number, facts.times.pace.enqueued_ns
    in_step = facts.times.launches.step.filled(-1) == step
    forward = _ordered(in_step & facts.times.launches.phase.where(Phase.FORWARD), enqueued_ns)
    of_loss = facts.times.named(_is_loss) | facts.times.of_op(_is_loss)
    first = next((row for row in forward.tolist() if of_loss[row]), None)
    if first is None:
        return
    until = facts.event_at(int(enqueued_ns[first]))
    born = [each for each in facts.allocations if facts.step_of(each.born) == position]
    projected = [each for each in born if _is_projected(each) and each.born <= until]
    last = max(projected, key=lambda each: each.born, default=None)
    module = "" if last is None else last.module
    weights = [each for each in facts.of_kind(MemoryKind.PARAMETERS) if each.is_of(module)]
    own = [s for s in projected if s.module == module and not _are_of_weights(s, weights)]
    logits = max(own, key=lambda each: each.size_bytes, default=None)
    if logits is None or not module:
        return
    backward = facts.launches_of(Phase.BACKWARD, module)
    backward = backward[in_step[backward]]
    if not len(backward):
        return
    end = facts.event_at(int(enqueued_ns[backward[-1]]))
    copies = [s for s in born if logits.born <= s.born <= end and _is_copy(s, logits, weights)]
    begins = [each.born for each in copies if each.phase in _BACKWARD]
    yield _Loss(
        logits,
        tuple(copies),
        forward[enqueued_ns[forward] >= logits.born_ns],
        max((each.size_bytes for each in weights), default=0),
        (min(begins, default=end), end),
    )


def _is_copy(each: Allocation, logits: Allocation, weights: Sequence[Allocation]) -> bool:
    """Tell whether a block is as large as the logits, and no gradient of a weight."""
    is_large = each.size_bytes >= _SAME * logits.size_bytes
    is_gradient = each.kind is MemoryKind.GRADIENTS
    return is_large and not is_gradient and not _are_of_weights(each, weights)


def _ordered(rows: np.ndarray[tuple[int], np.dtype[np.bool_]], enqueued_ns: Ints) -> Ints:
    chosen = np.flatnonzero(rows)
    ordered: Ints = chosen[np.argsort(enqueued_ns[chosen], kind="stable")]
    return ordered


def _is_loss(name: str) -> bool:
    return _IS_LOSS.search(name) is not None


def _is_projected(allocation: Allocation) -> bool:
    is_op = _PROJECTS.match(allocation.block.place.aten_op or "") is not None
    return (
        allocation.phase is Phase.FORWARD
        and is_op
        and allocation.block.place.module_class != "Embedding"
    )


def _are_of_weights(each: Allocation, weights: Sequence[Allocation]) -> bool:
    """Tell whether a block may be a copy of a weight, or its gradient."""
    sizes = [part for weight in weights for part in (weight.held_bytes, weight.held_bytes // 2)]
    return any(rounds_to(size, each.size_bytes) for size in sizes)


def _price_ns(facts: MemoryFacts, losses: Sequence[_Loss], chunks: int) -> int | None:
    repeated = np.concatenate([each.repeated for each in losses])
    sum_bytes = _PASSES_OF_SUM * losses[0].weight_bytes * (chunks - 1)
    price_ns = facts.price_ns(repeated, checkpoints=chunks)
    return None if price_ns is None else price_ns + facts.moving_ns(sum_bytes)


RULE = MemoryRule(
    name="chunked_loss",
    title="Copies of the logits",
    means="A projection to many classes and its cross entropy hold blocks as large as the logits: "
    "the logits, a float32 copy, the result of the softmax, and their gradients.",
    because="`F.cross_entropy` converts to float32 under autocast, or the model calls `.float()`. "
    "Autograd keeps the result of `log_softmax`, and each gradient is as large.",
    remedy="Projection and loss in chunks of tokens, each in `torch.utils.checkpoint.checkpoint`, "
    "so that one chunk is there at a time; or a fused linear cross entropy that never writes all "
    "logits.",
    price="The peak is that of the recorded timeline with each of these blocks in chunks, and with "
    "the gradient of the projection's weight next to them, which the chunks add to: the fewest "
    "chunks with which the peak is within 2% of that with 16. Time is that of the launches from "
    "the projection to the end of the forward, which run again, and what adding the weight's "
    "gradients takes at the device's bandwidth.",
    judge=_judge,
)
