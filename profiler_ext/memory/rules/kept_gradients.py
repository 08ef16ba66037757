"""The rule for gradients that are zeroed, and so are there from one step to the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from profiler_ext.findings.facts import CannotJudge, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, Location
from profiler_ext.findings.rules import zeroed_gradients
from profiler_ext.memory.births import rounds_to
from profiler_ext.memory.pricing import Allocation, MemoryFacts, Remedied
from profiler_ext.memory.recommendations import MemoryFinding, MemoryRule
from profiler_ext.records.events import Ints
from profiler_ext.records.memory import MemoryKind
from profiler_ext.records.vocabulary import Phase

_BACKWARD = (Phase.BACKWARD, Phase.GRADIENT_ACCUMULATION)


def _judge(facts: MemoryFacts) -> Iterable[MemoryFinding] | CannotJudge:
    zeroes, adds = zeroed_gradients.zeroes_and_adds(facts.times)
    kept = [each for each in facts.of_kind(MemoryKind.GRADIENTS) if each.freed == len(facts.live)]
    kept = [each for each in kept if each.born == 0]
    if not len(zeroes) or not kept:
        return ()
    at = sorted({facts.event_at(int(each)) for each in facts.times.pace.enqueued_ns[zeroes]})
    spans = [(allocation, *span) for allocation in kept for span in _unused(facts, allocation, at)]

    def change(remedied: Remedied) -> None:
        for each in spans:
            remedied.remove(*each)

    return (
        MemoryFinding(
            summary="gradients are zeroed, and are there while the backward makes others",
            predicted_peak_bytes=facts.peak_without(change),
            extra_ns=_extra_ns(facts, zeroes, adds),
            confidence=Confidence.ESTIMATED,
            remedy="optimizer.zero_grad(set_to_none=True), which is the default",
            location=_location(facts, zeroes.tolist()),
            evidence=(
                Figure("gradients", len(kept)),
                Figure("they have", sum(s.size_bytes for s in kept), FigureUnit.BYTES),
            ),
        ),
    )


def _location(facts: MemoryFacts, zeroes: Sequence[int]) -> Location:
    return location_of(facts.times.place(zeroes[0]))


def _unused(
    facts: MemoryFacts, kept: Allocation, zeroed: Sequence[int]
) -> Iterable[tuple[int, int]]:
    """Yield from when to when a gradient holds zeros: until the backward has made the new one."""
    made = [
        each
        for each in facts.allocations
        if each.phase in _BACKWARD
        and each.freed < len(facts.live)
        and rounds_to(kept.held_bytes, each.size_bytes)
    ]
    for position in range(len(facts.step_bounds)):
        here = [each for each in made if facts.step_of(each.born) == position]
        of_modules = (
            [each for each in here if each.module == module] for module in _makers(kept.module)
        )
        own = next(filter(None, of_modules), [])
        new = max(own, key=lambda each: each.freed, default=None)
        if new is not None:
            begins = [at for at in zeroed if at < new.born]
            yield max(begins, default=0), new.freed


def _makers(module: str) -> Iterable[str]:
    """Yield the modules whose gradients may be a parameter's: its own, then those around it.

    A parent that reads ``self.qkv.weight`` itself makes the gradient, not ``qkv``.
    """
    while module:
        yield module
        module = module.rpartition(".")[0]
    yield ""


def _extra_ns(facts: MemoryFacts, zeroes: Ints, adds: Ints) -> int | None:
    """Return the time of zeroing, and of the first backward that adds to zeros, below 0."""
    zeroing_ns = facts.price_ns(zeroes, -1)
    adding_ns = facts.price_ns(adds, -1 / zeroed_gradients.backward_passes(facts.times))
    return None if zeroing_ns is None or adding_ns is None else zeroing_ns + adding_ns


RULE = MemoryRule(
    name="kept_gradients",
    title="Gradients that hold zeros",
    means="Gradients are filled with zeros, and are there in the forward and in the backward, "
    "which makes new ones and adds them.",
    because="`zero_grad(set_to_none=False)` keeps each gradient's memory. With `None` it is free "
    "until the backward reaches the parameter, when most activations are gone.",
    remedy="`optimizer.zero_grad()`, whose default is `set_to_none=True`.",
    price="The peak is that of the recorded timeline without each gradient from its zeroing to the "
    "moment at which the new one is added to it. Time is that of the launches of [zeroed "
    "gradients](#zeroed_gradients): it is saved. None is claimed where it is not known how fast "
    "the CPU is.",
    judge=_judge,
)
