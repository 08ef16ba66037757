"""The rules for what an optimizer keeps, and for what it needs while it steps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import CannotJudge, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, Location
from profiler_ext.findings.rules import foreach_optimizer
from profiler_ext.kineto.communication import is_communication
from profiler_ext.memory.pricing import Allocation, MemoryFacts, Remedied, largest
from profiler_ext.memory.recommendations import MemoryFinding, MemoryRule
from profiler_ext.records.memory import MemoryKind
from profiler_ext.records.vocabulary import Phase

# torchao and bitsandbytes keep a float32 scale for so many numbers, and small states as they are
_BLOCK, _MIN_NUMBERS = 256, 4096
_FLOAT_BYTES = 4
_MOMENTS = ("exp_avg of ", "exp_avg_sq of ")


def _temporaries(facts: MemoryFacts) -> list[Allocation]:
    own = facts.of_kind(MemoryKind.TEMPORARIES, MemoryKind.WORKSPACES)
    return [each for each in own if each.phase is Phase.OPTIMIZER]


def _judge_temporaries(facts: MemoryFacts) -> Iterable[MemoryFinding] | CannotJudge:
    own = _temporaries(facts)
    where = largest(own)
    if where is None or not any("_foreach_" in (s.block.place.aten_op or "") for s in own):
        return ()

    def change(remedied: Remedied) -> None:
        for each in own:
            remedied.remove(each)

    return (
        MemoryFinding(
            summary="the optimizer makes temporaries of the size of all parameters",
            predicted_peak_bytes=facts.peak_without(change),
            extra_ns=_fused_ns(facts),
            confidence=Confidence.ESTIMATED,
            remedy="fused=True in the optimizer, or foreach=False",
            location=location_of(where.block.place),
            evidence=(
                Figure("temporaries at the peak", facts.at_peak(own), FigureUnit.BYTES),
                Figure("parameters", sum(s.size_bytes for s in
                       facts.of_kind(MemoryKind.PARAMETERS)), FigureUnit.BYTES),
            ),
        ),
    )  # fmt: skip


def _fused_ns(facts: MemoryFacts) -> int | None:
    """Return what the fused kernel saves by fewer passes over the parameters, below 0."""
    verdict = foreach_optimizer.RULE.verdict(facts.times)
    if isinstance(verdict, CannotJudge):
        return None
    saved_ns = sum(each.est_saving_ns for each in verdict)
    # What the fused op takes the CPU is not recorded
    is_paced_by_cpu = facts.times.training.cpu_ns > facts.times.busy_ns - saved_ns
    return None if is_paced_by_cpu else -saved_ns or None


def _quantised_bytes(state: Allocation) -> int:
    """Return the bytes of a float32 state in 8 bits, as torchao and bitsandbytes keep it."""
    numbers = state.held_bytes // _FLOAT_BYTES
    if numbers < _MIN_NUMBERS or numbers % _BLOCK:
        return state.size_bytes
    return numbers + numbers // _BLOCK * _FLOAT_BYTES


def _judge_8bit(facts: MemoryFacts) -> Iterable[MemoryFinding] | CannotJudge:
    states = [s for s in facts.of_kind(MemoryKind.OPTIMIZER) if s.block.name.startswith(_MOMENTS)]
    states = [s for s in states if _quantised_bytes(s) < s.size_bytes]
    is_float32 = _is_float32(facts)
    if states and is_float32 is None:
        return CannotJudge("no kernel of the optimizer says which type its states have")
    if not states or not is_float32:
        return ()
    temporaries = _temporaries(facts)

    def change(remedied: Remedied) -> None:
        for each in states:
            remedied.shrink(each, _quantised_bytes(each))
        for each in temporaries:
            remedied.remove(each)

    return (
        MemoryFinding(
            summary="the optimizer keeps two float32 moments of each parameter",
            predicted_peak_bytes=facts.peak_without(change),
            confidence=Confidence.ESTIMATED,
            remedy="torchao.optim.AdamW8bit or bitsandbytes.optim.AdamW8bit: 1 byte and a scale "
            f"for {_BLOCK} numbers in place of 4 bytes",
            location=_of_optimizer(facts),
            evidence=(
                Figure("states that could be 8-bit", len(states)),
                Figure("they have", sum(s.size_bytes for s in states), FigureUnit.BYTES),
                Figure("in 8 bits", sum(_quantised_bytes(s) for s in states),
                       FigureUnit.BYTES),
            ),
        ),
    )  # fmt: skip


def _is_float32(facts: MemoryFacts) -> bool | None:
    """Tell whether the optimizer computes in float32, by its kernels; ``None`` where unknown."""
    launches = facts.times.launches
    rows = np.flatnonzero(facts.times.in_steps(launches.phase.where(Phase.OPTIMIZER)))
    names = {launches.name[int(row)] for row in rows}
    if any(half in each for each in names for half in ("BFloat16", "Half", "bf16", "fp16")):
        return False
    return True if any("float" in each for each in names) else None


def _of_optimizer(facts: MemoryFacts) -> Location:
    launches = facts.times.launches
    rows = np.flatnonzero(facts.times.in_steps(launches.phase.where(Phase.OPTIMIZER)))
    return location_of(facts.times.place(facts.times.longest(rows))) if len(rows) else Location()


def _judge_sharded(facts: MemoryFacts) -> Iterable[MemoryFinding] | CannotJudge:
    ranks = facts.analysis.recording.settings.world_size
    states = facts.of_kind(MemoryKind.OPTIMIZER)
    if ranks < 2 or not states or not _reduces_gradients(facts):
        return ()

    def change(remedied: Remedied) -> None:
        for each in states:
            remedied.shrink(each, each.size_bytes // ranks)

    return (
        MemoryFinding(
            summary=f"each of {ranks} ranks keeps the same optimizer state",
            predicted_peak_bytes=facts.peak_without(change),
            confidence=Confidence.ESTIMATED,
            remedy="torch.distributed.optim.ZeroRedundancyOptimizer, or fully_shard of the model",
            location=_of_optimizer(facts),
            evidence=(
                Figure("ranks", ranks),
                Figure("states of this rank", sum(s.size_bytes for s in states), FigureUnit.BYTES),
            ),
        ),
    )


def _reduces_gradients(facts: MemoryFacts) -> bool:
    """Tell whether gradients are all-reduced, and nothing is gathered or scattered."""
    kernels = facts.times.launches.name
    names = {kernels[int(row)].lower() for row in np.flatnonzero(
        facts.times.in_steps(facts.times.named(is_communication)))}  # fmt: skip
    reduces = any("allreduce" in each or "all_reduce" in each for each in names)
    return reduces and not any("gather" in each or "scatter" in each for each in names)


TEMPORARIES = MemoryRule(
    name="optimizer_temporaries",
    title="Temporaries of the optimizer",
    means="The peak is in the optimizer's step, where `_foreach_` ops write the results of all "
    "parameters at once.",
    because="`foreach` is torch's default on a GPU. Adam's square root of the second moments has "
    "as many bytes as the parameters.",
    remedy="`fused=True` needs none of them, and is faster; `foreach=False` has those of one "
    "parameter at a time.",
    price="The peak is that of the recorded timeline without the blocks that the optimizer "
    "allocates and frees; it may be in the backward then. Time is what [fewer "
    "passes](#foreach_optimizer) save. None is claimed where the CPU may set the pace.",
    judge=_judge_temporaries,
)
EIGHT_BIT = MemoryRule(
    name="optimizer_8bit",
    title="Optimizer state in float32",
    means="Adam keeps two moments of 4 bytes for each number of the parameters.",
    because="Moments have the parameters' type. Quantised in blocks, they train as well in many "
    "models; try whether yours does.",
    remedy="`torchao.optim.AdamW8bit` or `bitsandbytes.optim.AdamW8bit`.",
    price="The peak is that of the recorded timeline with moments of 1 byte for each number and a "
    "float32 scale for 256, where a state has at least 4,096 numbers and a multiple of 256; "
    "without the temporaries of `foreach`. What the step takes then is not known.",
    judge=_judge_8bit,
)
SHARDED = MemoryRule(
    name="sharded_optimizer",
    title="Optimizer state on every rank",
    means="Ranks all-reduce their gradients, and each keeps the whole state of the optimizer.",
    because="`DistributedDataParallel` replicates parameters, gradients and optimizer state.",
    remedy="`torch.distributed.optim.ZeroRedundancyOptimizer` keeps a part of the state on each "
    "rank; `fully_shard` (FSDP2) parts of parameters and gradients, too.",
    price="The peak is that of the recorded timeline with the state divided by the number of "
    "ranks. The time that ranks need to send updated parameters is not known.",
    judge=_judge_sharded,
)
