"""The training steps of the trial of findings: each with a flaw, and the same without it.

A case makes two steps that do the same work. Sizes are those of real models where the flaw is one
of a model (12 layers, width 768), and in the tiny mode those that a CPU runs in a moment.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.captured import captured
from benchmarks.cases import Case, Pair, Sizes, fp32_and_tf32, gpt, heads, training
from benchmarks.flaws_of_input import data_loader, pageable_copy
from benchmarks.models import Block, channels_last
from benchmarks.steps import Step


def launch_bound(sizes: Sizes) -> Pair:
    """A small batch, eager; the same with CUDA graphs."""
    model, x = gpt(sizes, 8, torch.bfloat16)
    compiled = torch.compile(model, mode="reduce-overhead")
    return Pair(training(model, x), training(model, x, forward=compiled))


def still_launched(sizes: Sizes) -> Pair:
    """The model in CUDA graphs, the optimizer launched; all in one CUDA graph."""

    def made(mode: str) -> Step:
        model, x = gpt(sizes, 8, torch.bfloat16)
        return training(model, x, forward=torch.compile(model, mode=mode))

    return Pair(made("reduce-overhead"), captured(made("default")))


def fp32_matmul(sizes: Sizes) -> Pair:
    """float32 as it is; the same with TF32."""
    model, x = gpt(sizes, 16, torch.float32)
    return fp32_and_tf32(training(model, x))


def unfused_attention(sizes: Sizes) -> Pair:
    """Attention by its formula; by a kernel of its own."""
    every = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]

    def made(backends: list[SDPBackend]) -> Step:
        model, x = gpt(sizes, 16, torch.bfloat16)
        step = training(model, x)

        def run() -> None:
            with sdpa_kernel(backends):
                step()

        return run

    return Pair(made([SDPBackend.MATH]), made([*every, SDPBackend.MATH]))


def recompute(sizes: Sizes) -> Pair:
    """Each block in a checkpoint; the same without."""
    model, x = gpt(sizes, 64, torch.bfloat16, checkpointed=True)
    plain, _ = gpt(sizes, 1, torch.bfloat16)
    return Pair(training(model, x), training(plain, x))


def dtype_conversion(sizes: Sizes) -> Pair:
    """Wide layers under autocast; the same with parameters in bfloat16."""
    width = 64 if sizes.is_tiny else 4096

    def made(dtype: torch.dtype) -> nn.Module:
        layers = (nn.Linear(width, width, bias=False) for _ in range(8))
        return nn.Sequential(*layers).to(sizes.device, dtype)

    wide, narrow = made(torch.float32), made(torch.bfloat16)
    rows = 8 * sizes.tokens
    x = torch.randn(rows, width, device=sizes.device, dtype=torch.bfloat16)

    def under_autocast() -> None:
        with torch.autocast(sizes.device, torch.bfloat16):
            loss = wide(x).square().mean()
        loss.backward()
        wide.zero_grad(set_to_none=True)

    def without() -> None:
        narrow(x).square().mean().backward()
        narrow.zero_grad(set_to_none=True)

    return Pair(under_autocast, without)


def far_from_roofline(sizes: Sizes) -> Pair:
    """Products of 4097 by 4097 in bfloat16; the same padded to 4104."""
    rows, odd, even = (64, 33, 40) if sizes.is_tiny else (8192, 4097, 4104)

    def made(width: int) -> Step:
        layers = (nn.Linear(width, width, bias=False) for _ in range(4))
        model = nn.Sequential(*layers).to(sizes.device, torch.bfloat16)
        x = torch.randn(rows, width, device=sizes.device, dtype=torch.bfloat16)
        compiled = torch.compile(model, options={"shape_padding": False})
        return training(model, forward=lambda: compiled(x).float().square().mean())

    return Pair(made(odd), made(even))


def layout_conversion(sizes: Sizes) -> Pair:
    """Convolutions in float16 with the channels first; the same with them last."""
    channels, side = (8, 8) if sizes.is_tiny else (128, 56)
    dtype = torch.float32 if sizes.is_tiny else torch.float16

    def made() -> nn.Module:
        layers = [nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(8)]
        return nn.Sequential(*layers).to(sizes.device, dtype)

    images = torch.randn(64, channels, side, side, device=sizes.device, dtype=dtype)
    first, last = made(), channels_last(made())
    moved = images.to(memory_format=torch.channels_last)
    return Pair(
        training(first, forward=lambda: first(images).float().mean()),
        training(last, forward=lambda: last(moved).float().mean()),
    )


class Moving(nn.Sequential):
    """Layers that get what lies elsewhere each time; of one class both would share their graph."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the loss, so that the backward gets one number."""
        return super().forward(x).float().mean()


class Staying(nn.Sequential):
    """The same layers, which get what stays where it is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        return super().forward(x).float().mean()


def replay_copy(sizes: Sizes) -> Pair:
    """Batches normalised into new memory, under CUDA graphs; into memory that stays where it is."""
    rows, width = (64, 16) if sizes.is_tiny else (1 << 20, 256)
    raw = torch.randn(rows, width, device=sizes.device, dtype=torch.bfloat16)
    stays = torch.empty_like(raw)
    torch._dynamo.mark_static_address(stays)

    def made(kind: type[nn.Sequential], batch: Callable[[], torch.Tensor]) -> Step:
        layers = (nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        model = kind(*layers).to(sizes.device, torch.bfloat16)
        compiled = torch.compile(model, mode="reduce-overhead")

        def forward() -> torch.Tensor:
            torch.compiler.cudagraph_mark_step_begin()
            result: torch.Tensor = compiled(batch())
            return result

        return training(model, forward=forward)

    moving = made(Moving, lambda: torch.mul(raw, 0.5))
    staying = made(Staying, lambda: torch.mul(raw, 0.5, out=stays))
    # That of torch 2.11 takes what was compiled for the one for the other, which copies then too.
    with torch._functorch.config.patch(enable_autograd_cache=False):
        moving()
        staying()
    return Pair(moving, staying)


def unlike_siblings(sizes: Sizes) -> Pair:
    """One of the blocks in float32; the same with all in bfloat16."""

    def made(wide: bool) -> Step:
        model, x = gpt(sizes, 64, torch.bfloat16)
        block = model.blocks[5 % sizes.layers]
        if wide:
            block.float()
            block.register_forward_pre_hook(lambda _, given: (given[0].float(),))
            block.register_forward_hook(lambda _, __, result: result.to(torch.bfloat16))
        return training(model, x)

    return Pair(made(wide=True), made(wide=False))


def synchronisation(sizes: Sizes) -> Pair:
    """Each block looks at its result for NaN; the device notes it, and nobody looks."""
    model, x = gpt(sizes, 48, torch.bfloat16)

    def looking() -> torch.Tensor:
        y = x
        for block in model.blocks:
            y = block(y)
            if bool(y.isnan().any()):
                raise FloatingPointError("a block made NaN")
        return y.float().square().mean()

    def summing() -> torch.Tensor:
        y, found = x, torch.zeros((), dtype=torch.bool, device=sizes.device)
        for block in model.blocks:
            y = block(y)
            found |= y.isnan().any()
        return y.float().square().mean()

    return Pair(training(model, forward=looking), training(model, forward=summing))


def allocating(sizes: Sizes) -> Pair:
    """The cache emptied in each step; the same without."""
    model, x = gpt(sizes, 32, torch.bfloat16)
    step = training(model, x)

    def emptying() -> None:
        step()
        if sizes.device == "cuda":
            torch.cuda.empty_cache()

    return Pair(emptying, step)


class Broken(nn.Module):
    """Runs a block, with a break of the graph before it."""

    def __init__(self, block: nn.Module, breaks: bool) -> None:
        super().__init__()
        self.block, self.breaks = block, breaks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the block returns."""
        if self.breaks:
            torch._dynamo.graph_break()
        return self.block(x)


def graph_break(sizes: Sizes) -> Pair:
    """A break of the graph before each of four small blocks; none."""
    x = torch.randn(8, sizes.tokens // 4, sizes.width, device=sizes.device, dtype=torch.bfloat16)

    def made(breaks: bool) -> Step:
        blocks = (Broken(Block(sizes.width, heads(sizes)), breaks) for _ in range(4))
        model = nn.Sequential(*blocks).to(sizes.device, torch.bfloat16)
        compiled = torch.compile(model)
        return training(model, forward=lambda: compiled(x).float().square().mean())

    return Pair(made(breaks=True), made(breaks=False))


CASES = (
    Case("launch_bound", "GPT, 8 x 512 tokens, eager; `reduce-overhead`", launch_bound),
    Case("launch_bound", "the same under CUDA graphs; the whole step in one", still_launched),
    Case("fp32_matmul", "GPT in float32; TF32", fp32_matmul),
    Case("unfused_attention", "GPT, attention by `MATH`; by a kernel", unfused_attention),
    Case("pageable_copy", "128 images, pageable; pinned", pageable_copy),
    Case("recompute", "GPT, each block in a checkpoint; none", recompute),
    Case("dtype_conversion", "8 layers of 4096, autocast; bfloat16", dtype_conversion),
    Case("far_from_roofline", "bf16 products of odd sizes; padded", far_from_roofline),
    Case("layout_conversion", "8 convolutions, channels first; last", layout_conversion),
    Case("synchronisation", "an `if` on a tensor after each block; none", synchronisation),
    Case("data_loader", "no workers; eight", data_loader),
    Case("allocating", "`empty_cache()` in each step; none", allocating),
    Case("graph_break", "a break before each of 4 blocks; none", graph_break),
    Case("replay_copy", "CUDA graphs, a batch in new memory; at one address", replay_copy),
    Case("unlike_siblings", "one block of 12 in float32; none", unlike_siblings),
)
