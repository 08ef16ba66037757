"""Steps whose library kernels are slow: sizes without alignment, masks and dtypes of attention.

The models are complete language models, since the sizes that matter are those of the vocabulary and
of hidden layers. The remedied side pads a size, or calls attention as its fastest kernel takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.cases import Case, Pair, Sizes, training
from benchmarks.models import channels_last
from benchmarks.steps import Step

MISALIGNED, BACKEND, UNFUSED = "misaligned_matmul", "attention_backend", "unfused_attention"
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend as the fastest kernel takes it."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def bool_mask(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend with a mask that says what ``is_causal`` says."""
    mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).tril()
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def float_mask(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend with such a mask that is added."""
    length = q.shape[2]
    mask = torch.full((length, length), float("-inf"), dtype=q.dtype, device=q.device).triu(1)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def in_float32(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend in float32, as code that fears for the softmax does."""
    q, k, v = q.float(), k.float(), v.float()
    with torch.autocast(q.device.type, enabled=False):
        result = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return result


def by_math(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend by the backend without a kernel of its own."""
    with sdpa_kernel(SDPBackend.MATH):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


@dataclass(frozen=True)
class Shape:
    """A language model's sizes."""

    width: int = 768
    heads: int = 12
    hidden: int = 3072
    layers: int = 12
    words: int = 50304
    batch: int = 16
    tokens: int = 1024
    attend: Attend = causal
    block: Callable[[Shape], nn.Module] | None = None


class Block(nn.Module):
    """A block whose attention and hidden layer are given."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.heads, self.attend = shape.heads, shape.attend
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, shape.hidden), nn.Linear(shape.hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the next block gets."""
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = self.attend(q, k, v).to(x.dtype)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class Language(nn.Module):
    """A language model with its loss."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed = nn.Embedding(shape.words, shape.width)
        self.blocks = nn.ModuleList((shape.block or Block)(shape) for _ in range(shape.layers))
        self.head = nn.Linear(shape.width, shape.words, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def tiny(shape: Shape) -> Shape:
    """Return sizes that a CPU runs in a moment; what is odd stays so."""
    odd = shape.words % 8, shape.hidden % 8
    return replace(
        shape,
        width=8 * shape.heads,
        hidden=64 + odd[1],
        words=128 + odd[0],
        layers=2,
        batch=2,
        tokens=16,
    )


def language(sizes: Sizes, shape: Shape, *, compiled: bool = False, plain: bool = False) -> Step:
    """Return a step of a language model under autocast, or with all of it in bfloat16."""
    shape = tiny(shape) if sizes.is_tiny else shape
    model: nn.Module = Language(shape).to(sizes.device, torch.bfloat16 if plain else torch.float32)
    words = 128 if sizes.is_tiny else min(shape.words, 50257)
    ids = torch.randint(words, (shape.batch, shape.tokens), device=sizes.device)
    run = torch.compile(model, dynamic=False) if compiled else model

    def forward() -> torch.Tensor:
        with torch.autocast(sizes.device, torch.bfloat16, enabled=not plain):
            loss: torch.Tensor = run(ids)
        return loss

    return training(model, forward=forward)


def two(
    flawed: Shape, remedied: Shape, sizes: Sizes, *, compiled: bool = False, plain: bool = False
) -> Pair:
    """Return steps of two shapes."""
    made = partial(language, sizes, compiled=compiled, plain=plain)
    return Pair(made(flawed), made(remedied))


def need_weights(sizes: Sizes) -> Pair:
    """An encoder's attention that returns its weights, which nobody reads; that does not."""
    width, batch, tokens = (32, 2, 16) if sizes.is_tiny else (768, 32, 512)

    class Layer(nn.Module):
        def __init__(self, weights: bool) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.attention = nn.MultiheadAttention(width, 4 * width // 256 or 2, batch_first=True)
            self.weights = weights

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(x)
            return x + self.attention(y, y, y, need_weights=self.weights)[0]

    def made(weights: bool) -> Step:
        model = nn.Sequential(*(Layer(weights) for _ in range(8))).to(sizes.device, torch.bfloat16)
        x = torch.randn(batch, tokens, width, device=sizes.device, dtype=torch.bfloat16)
        return training(model, forward=lambda: model(x).float().square().mean())

    return Pair(made(weights=True), made(weights=False))


def classes(sizes: Sizes) -> Pair:
    """A small convolutional classifier of 1001 classes; of 1000: too little to speak of."""
    width, side, batch = (8, 8, 4) if sizes.is_tiny else (256, 28, 256)

    def made(count: int) -> Step:
        model = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            *(
                layer
                for _ in range(6)
                for layer in (nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
            ),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, count),
        )
        model = channels_last(model.to(sizes.device, torch.bfloat16))
        images = torch.randn(batch, 3, side, side, device=sizes.device, dtype=torch.bfloat16)
        images = images.to(memory_format=torch.channels_last)
        return training(model, forward=lambda: model(images).float().square().mean())

    return Pair(made(1001), made(1000))


GPT2 = Shape()
SMALL = Shape(layers=6, words=8192)
FEW = Shape(layers=3)  # compiling takes time for each layer
LIBRARY = (
    Case(
        MISALIGNED,
        "GPT-2 eager, 50257 words; 50304",
        partial(two, replace(GPT2, words=50257), GPT2),
    ),
    Case(
        MISALIGNED,
        "the same in bfloat16",
        partial(two, replace(GPT2, words=50257), GPT2, plain=True),
    ),
    Case(
        MISALIGNED,
        "3 layers of it compiled; 50304",
        partial(two, replace(FEW, words=50257), FEW, compiled=True),
    ),
    Case(
        MISALIGNED,
        "hidden layers of 2731; 2752",
        partial(two, replace(SMALL, hidden=2731), replace(SMALL, hidden=2752)),
    ),
    Case(
        MISALIGNED,
        "hidden layers of 2730, compiled; 2752",
        partial(two, replace(FEW, hidden=2730), replace(FEW, hidden=2752), compiled=True),
    ),
    Case(
        MISALIGNED,
        "hidden layers of 2732, bfloat16; 2752",
        partial(two, replace(SMALL, hidden=2732), replace(SMALL, hidden=2752), plain=True),
    ),
    Case(
        MISALIGNED,
        "width 770 of 11 heads; 768 of 12",
        partial(two, replace(SMALL, width=770, heads=11), SMALL),
    ),
    Case(
        MISALIGNED,
        "1023 tokens; 1024",
        partial(two, replace(SMALL, tokens=1023), SMALL),
    ),
    Case(MISALIGNED, "a convolutional classifier of 1001 classes; of 1000", classes),
    Case(
        BACKEND,
        "a boolean causal mask; `is_causal`",
        partial(two, replace(SMALL, attend=bool_mask), SMALL),
    ),
    Case(
        BACKEND,
        "the same compiled",
        partial(two, replace(FEW, attend=bool_mask), FEW, compiled=True),
    ),
    Case(
        BACKEND,
        "a causal mask that is added; `is_causal`",
        partial(two, replace(SMALL, attend=float_mask), SMALL),
    ),
    Case(
        BACKEND,
        "attention in float32; bfloat16",
        partial(two, replace(SMALL, attend=in_float32), SMALL),
    ),
    Case(
        BACKEND,
        "the same compiled",
        partial(two, replace(FEW, attend=in_float32), FEW, compiled=True),
    ),
    Case(
        UNFUSED,
        "attention by `MATH`; by a kernel",
        partial(two, replace(SMALL, attend=by_math), SMALL),
    ),
    Case(
        BACKEND,
        "8 heads of 100; 8 of 96",
        partial(two, replace(SMALL, width=800, heads=8), replace(SMALL, width=768, heads=8)),
    ),
    Case(UNFUSED, "MultiheadAttention with `need_weights`; without", need_weights),
)


class Swiglu(nn.Module):
    """A block of a Llama."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.heads, self.attend = shape.heads, shape.attend
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, shape.hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the next block gets."""
        batch, tokens, width = x.shape
        y = self.norm_1(x)
        q, k, v = (
            each(y).view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)
            for each in (self.q, self.k, self.v)
        )
        y = self.attend(q, k, v).to(x.dtype)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
        y = self.norm_2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


def written_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend as code from before the fused kernels does."""
    length = q.shape[2]
    scores = (q @ k.transpose(-2, -1)) * q.shape[3] ** -0.5
    mask = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    weights = functional.softmax(scores, dim=-1)
    return weights @ v


def efficient_only(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend by the backend that an old setting leaves."""
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def flash_only(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend by FlashAttention, by name."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def all_true_padding(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend with a mask of padding where there is none."""
    mask = torch.ones(q.shape[0], 1, 1, q.shape[2], dtype=torch.bool, device=q.device)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def full(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend to everything."""
    return functional.scaled_dot_product_attention(q, k, v)


def full_float32(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend to everything, in float32."""
    with torch.autocast(q.device.type, enabled=False):
        return functional.scaled_dot_product_attention(q.float(), k.float(), v.float())


def tf32(sizes: Sizes) -> Pair:
    """Layers of 1026 in TF32; of 1024."""
    rows, odd, even = (64, 34, 32) if sizes.is_tiny else (16384, 1026, 1024)
    torch.set_float32_matmul_precision("high")

    def made(width: int) -> Step:
        layers = [nn.Linear(width, width) for _ in range(6)]
        model = nn.Sequential(*layers).to(sizes.device)
        x = torch.randn(rows, width, device=sizes.device)
        return training(model, forward=lambda: model(x).square().mean())

    return Pair(made(odd), made(even))


LLAMA = Shape(width=1024, heads=8, hidden=2752, layers=6, words=8192, batch=8, block=Swiglu)
VIT = Shape(layers=6, words=1024, batch=128, tokens=197, attend=full)
HELD_OUT = (
    Case(
        MISALIGNED,
        "Llama, hidden layers of 2730; 2752",
        partial(two, replace(LLAMA, hidden=2730), LLAMA),
    ),
    Case(
        MISALIGNED,
        "Llama of width 2048, 32003 words, bfloat16; 32064",
        partial(
            two,
            replace(LLAMA, width=2048, heads=16, hidden=5504, layers=3, words=32003),
            replace(LLAMA, width=2048, heads=16, hidden=5504, layers=3, words=32064),
            plain=True,
        ),
    ),
    Case(MISALIGNED, "6 layers of 1026 in TF32; 1024", tf32),
    Case(
        BACKEND,
        "ViT of 197 tokens, attention in float32; bfloat16",
        partial(two, replace(VIT, attend=full_float32), VIT),
    ),
    Case(
        BACKEND,
        "Llama, `EFFICIENT_ATTENTION` alone; torch's choice",
        partial(two, replace(LLAMA, attend=efficient_only), LLAMA),
    ),
    Case(
        BACKEND,
        "Llama, `FLASH_ATTENTION` alone; torch's choice",
        partial(two, replace(LLAMA, attend=flash_only), LLAMA),
    ),
    Case(
        BACKEND,
        "Llama of width 1040, 8 heads of 130; width 1024",
        partial(two, replace(LLAMA, width=1040), LLAMA),
    ),
    Case(
        BACKEND,
        "ViT with a mask of padding that masks nothing; without",
        partial(two, replace(VIT, attend=all_true_padding), VIT),
    ),
    Case(
        UNFUSED,
        "Llama, attention written out; `is_causal`",
        partial(two, replace(LLAMA, attend=written_out), LLAMA),
    ),
    Case(
        BACKEND,
        "Llama of 2048 tokens, a boolean causal mask; `is_causal`",
        partial(
            two,
            replace(LLAMA, tokens=2048, attend=bool_mask),
            replace(LLAMA, tokens=2048),
        ),
    ),
    Case(
        BACKEND,
        "2 layers of it compiled",
        partial(
            two,
            replace(LLAMA, layers=2, tokens=2048, attend=bool_mask),
            replace(LLAMA, layers=2, tokens=2048),
            compiled=True,
        ),
    ),
    Case(
        MISALIGNED,
        "2 layers compiled, 32003 words; 32064",
        partial(
            two,
            replace(LLAMA, layers=2, words=32003),
            replace(LLAMA, layers=2, words=32064),
            compiled=True,
        ),
    ),
    Case(
        MISALIGNED,
        "2 layers compiled, hidden layers of 2730; 2752",
        partial(
            two, replace(LLAMA, layers=2, hidden=2730), replace(LLAMA, layers=2), compiled=True
        ),
    ),
)
