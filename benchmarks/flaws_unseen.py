"""The steps of several ranks that rules about communication were not fitted to.

Their models, sizes and ways to share the work are others than those of ``flaws_ranks``: blocks of a
GPT of width 4096 instead of square layers, gradients in one bucket, FSDP whose gathers nobody
prefetches, tensor parallelism whose all-reduces the next layer waits for.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from benchmarks.cases import Pair, Sizes, training
from benchmarks.flaws_ranks import REPEATED, RankCase, accumulated, loss
from benchmarks.models import Block
from benchmarks.steps import Step

_LAYERS = 4
_MICRO_BATCHES = 3
_NO_OVERLAP_MB = 1 << 20
_EXPOSED = "exposed_communication"


def one_bucket(sizes: Sizes) -> Pair:
    """DDP reduces all gradients at once when the backward is over; in buckets of 25 MB."""
    return Pair(*(data_parallel(sizes, megabytes) for megabytes in (_NO_OVERLAP_MB, 25)))


def not_prefetched(sizes: Sizes) -> Pair:
    """FSDP gathers a block when its turn has come; while the block before it computes."""

    def made(prefetches: bool) -> Step:
        model = sharded(sizes, each=True)
        units = [unit for unit in model.modules() if isinstance(unit, FSDPModule)]
        for unit in units:
            unit._set_unshard_async_op(async_op=True)
        for unit, after in pairwise(units[1:] if prefetches else ()):
            unit.set_modules_to_forward_prefetch([after])
        return training(model, forward=lambda: loss(model, x))

    x = tokens(sizes)
    return Pair(made(prefetches=False), made(prefetches=True))


def one_unit(sizes: Sizes) -> Pair:
    """FSDP gathers the whole model before its first block; each block, while one computes."""
    x = tokens(sizes)
    whole, each = sharded(sizes, each=False), sharded(sizes, each=True)
    return Pair(
        training(whole, forward=lambda: loss(whole, x)),
        training(each, forward=lambda: loss(each, x)),
    )


def each_micro_batch(sizes: Sizes) -> Pair:
    """Gradients are reduced after each of three micro-batches; after the last of them."""
    return accumulated(lambda: gpt(sizes), tokens(sizes).chunk(_MICRO_BATCHES))


def tensor_parallel(sizes: Sizes) -> Pair:
    """The next layer waits for each all-reduce; two half batches, each computed beside one."""
    model, x = Split(sizes), tokens(sizes).flatten(0, 1)
    return Pair(*(training(model, forward=lambda n=n: model(x, n)) for n in (1, 2)))


class Split(nn.Module):
    """Layers whose hidden width is split over the ranks, as in Megatron's."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = 64 if sizes.is_tiny else 4096
        hidden = 4 * width // dist.get_world_size()
        self.up = _products(width, hidden, sizes.device)
        self.down = _products(hidden, width, sizes.device)

    def forward(self, x: torch.Tensor, parts: int) -> torch.Tensor:
        """Return the loss of a batch that goes through in so many parts, each layer by layer."""
        sums = [Pending() for _ in range(parts)]
        chunks = list(x.chunk(parts))
        for up, down in zip(self.up, self.down, strict=True):
            for at, pending in enumerate(sums):
                given = Enter.apply(chunks[at], pending)
                chunks[at] = Leave.apply(down(functional.relu(up(given))), pending)
        for pending in sums:
            pending.wait()
        result: torch.Tensor = torch.cat(chunks).float().square().mean()
        return result


def _products(wide: int, out: int, device: str) -> nn.ModuleList:
    layers = [nn.Linear(wide, out, bias=False, device=device) for _ in range(2 * _LAYERS)]
    return nn.ModuleList(layers).bfloat16()


class Pending:
    """The all-reduce of a part that is under way."""

    def __init__(self) -> None:
        self.work: Any = None

    def begin(self, value: torch.Tensor) -> torch.Tensor:
        """Begin to add a value up over the ranks, in place."""
        value = value.contiguous()
        self.work = dist.all_reduce(value, async_op=True)
        return value

    def wait(self) -> None:
        """Let the stream wait for it."""
        if self.work is not None:
            self.work.wait()
            self.work = None


class Enter(torch.autograd.Function):
    """Into a split layer: waits for the sum of the one before; sums the gradients of its input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, pending: Pending) -> torch.Tensor:
        """Return what the layer gets."""
        pending.wait()
        ctx.pending = pending
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Begin to add up the gradient; whoever takes it has to wait."""
        return ctx.pending.begin(gradients[0]), None


class Leave(torch.autograd.Function):
    """Out of a split layer: sums what it computed; waits for the gradient of that."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, pending: Pending) -> torch.Tensor:
        """Begin to add up the result; whoever takes it has to wait."""
        ctx.pending = pending
        return pending.begin(x.clone())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient once it is there."""
        ctx.pending.wait()
        return gradients[0], None


def gpt(sizes: Sizes) -> nn.Sequential:
    """Return blocks of a GPT."""
    width = 64 if sizes.is_tiny else 4096
    with torch.device(sizes.device):
        blocks = [Block(width, max(width // 128, 1)).bfloat16() for _ in range(_LAYERS)]
    return nn.Sequential(*blocks)


def tokens(sizes: Sizes) -> torch.Tensor:
    """Return what the first block gets."""
    shape = (6, 8, 64) if sizes.is_tiny else (6, 1024, 4096)
    return torch.randn(*shape, device=sizes.device, dtype=torch.bfloat16)


def data_parallel(sizes: Sizes, bucket_mb: float) -> Step:
    """Return a step of the blocks under DDP."""
    ranked = DistributedDataParallel(gpt(sizes), bucket_cap_mb=bucket_mb)
    x = tokens(sizes)
    return training(ranked, forward=lambda: loss(ranked, x))


def sharded(sizes: Sizes, *, each: bool) -> nn.Sequential:
    """Return the blocks under FSDP: each of them a unit, or all of them one."""
    model = gpt(sizes)
    for block in model if each else ():
        fully_shard(block)
    fully_shard(model)
    return model


UNSEEN = (
    RankCase("one_bucket", _EXPOSED, "GPT, DDP in one bucket; of 25 MB", one_bucket),
    RankCase("fetch", _EXPOSED, "GPT, FSDP without prefetching; with", not_prefetched),
    RankCase("whole", _EXPOSED, "GPT, FSDP of the whole model; of each block", one_unit),
    RankCase("accumulate", REPEATED, "GPT, 3 micro-batches; `no_sync()`", each_micro_batch),
    RankCase("tensor", _EXPOSED, "tensor parallel; two half batches", tensor_parallel),
)
