"""The steps of several ranks in the trial of findings: each with a flaw, and without it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from benchmarks.cases import GPT, Pair, Sizes, inputs, training
from benchmarks.steps import Step

_LATE_S = 0.01
_MICRO_BATCHES = 4


@dataclass(frozen=True)
class RankCase:
    """A case: its name, the rule that should find its flaw, what that is, and its steps."""

    name: str
    rule: str
    words: str
    make: Callable[[Sizes], Pair]


def after_backward(sizes: Sizes) -> Pair:
    """Each gradient is reduced by itself when the backward is over; DDP does it meanwhile."""
    alone, ddp_model = (wide(sizes) for _ in range(2))
    x = rows(sizes)
    optimizer = torch.optim.AdamW(alone.parameters(), lr=1e-5, fused=sizes.device == "cuda")

    def step() -> None:
        loss(alone, x).backward()
        for parameter in alone.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    ranked = DistributedDataParallel(ddp_model, gradient_as_bucket_view=True)
    return Pair(step, training(ranked, forward=lambda: loss(ranked, x)))


def one_unit(sizes: Sizes) -> Pair:
    """FSDP gathers the whole model before its first layer; each layer is gathered by itself."""
    one_unit_model, each = wide(sizes), wide(sizes)
    for layer in each:
        fully_shard(layer)
    fully_shard(one_unit_model)
    fully_shard(each)
    return pair(sizes, one_unit_model, each)


def gathered_twice(sizes: Sizes) -> Pair:
    """FSDP gathers each layer in the backward once more; it keeps what the forward gathered."""
    again, kept = wide(sizes), wide(sizes)
    for model, reshards in ((again, True), (kept, False)):
        for layer in (*model, model):
            fully_shard(layer, reshard_after_forward=reshards)
    return pair(sizes, again, kept)


def each_micro_batch(sizes: Sizes) -> Pair:
    """Gradients are reduced after each of four micro-batches; after the last of them."""
    return accumulated(lambda: wide(sizes), rows(sizes).chunk(_MICRO_BATCHES))


def accumulated(made: Callable[[], nn.Module], parts: Sequence[torch.Tensor]) -> Pair:
    """Return steps under DDP that reduce after each micro-batch, and after the last one only.

    Args:
        made: makes the model anew.
        parts: the micro-batches.
    """

    def step_of(synchronises: bool) -> Step:
        ranked = DistributedDataParallel(made(), gradient_as_bucket_view=True)
        optimizer = torch.optim.AdamW(ranked.parameters(), lr=1e-5, fused=parts[0].is_cuda)

        def step() -> None:
            for at, part in enumerate(parts, start=1):
                is_reduced = synchronises or at == len(parts)
                with nullcontext() if is_reduced else ranked.no_sync():
                    loss(ranked, part).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return step

    return Pair(step_of(synchronises=True), step_of(synchronises=False))


def small_buckets(sizes: Sizes) -> Pair:
    """DDP reduces nearly each gradient by itself; in buckets of 25 MB."""
    return Pair(data_parallel(sizes, bucket_mb=0.02), data_parallel(sizes, bucket_mb=25))


def late_rank(sizes: Sizes) -> Pair:
    """Rank 1 does something else for ten milliseconds in each step; it does not."""
    step = data_parallel(sizes, bucket_mb=25)

    def late() -> None:
        if dist.get_rank() == 1:
            if sizes.device == "cuda":
                torch.cuda.synchronize()
            time.sleep(_LATE_S)
        step()

    return Pair(late, step)


def wide(sizes: Sizes) -> nn.Sequential:
    """Return layers that have much to communicate, for what they compute."""
    width = 64 if sizes.is_tiny else 4096
    layers = (nn.Linear(width, width) for _ in range(sizes.layers))
    return nn.Sequential(*layers).to(sizes.device, torch.bfloat16)


def rows(sizes: Sizes) -> torch.Tensor:
    """Return what such layers get."""
    shape = (8, 64) if sizes.is_tiny else (6144, 4096)
    return torch.randn(*shape, device=sizes.device, dtype=torch.bfloat16)


def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return the loss of such layers."""
    result: torch.Tensor = model(x).float().square().mean()
    return result


def pair(sizes: Sizes, flawed: nn.Sequential, remedied: nn.Sequential) -> Pair:
    """Return the steps of two models, which get the same."""
    x = rows(sizes)
    return Pair(
        training(flawed, forward=lambda: loss(flawed, x)),
        training(remedied, forward=lambda: loss(remedied, x)),
    )


def data_parallel(sizes: Sizes, bucket_mb: float) -> Step:
    """Return a step of a GPT under DDP, whose first bucket is as large as the others."""
    model = GPT(sizes).to(sizes.device, torch.bfloat16)
    ranked = DistributedDataParallel(model, bucket_cap_mb=bucket_mb)
    return training(ranked, inputs(sizes, 48, torch.bfloat16))


_EXPOSED, REPEATED = "exposed_communication", "repeated_reduction"
RANK_CASES = (
    RankCase("after", _EXPOSED, "gradients reduced after the backward; DDP", after_backward),
    RankCase("unit", _EXPOSED, "FSDP of the whole model; of each layer", one_unit),
    RankCase("again", _EXPOSED, "FSDP gathers twice; keeps what it gathered", gathered_twice),
    RankCase(
        "micro",
        "repeated_reduction",
        "4 micro-batches, each reduced; `no_sync()`",
        each_micro_batch,
    ),
    RankCase("buckets", _EXPOSED, "buckets of 20 KB; of 25 MB", small_buckets),
    RankCase("late", "late_rank", "rank 1 sleeps 10 ms per step; not", late_rank),
)
