"""Flaws of language models that are adapted, whose makers kept some of them in float32."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import GPT, Block, Config
from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = ["head_in_float32", "norms_in_float32"]


class FloatHead(nn.Linear):
    """A head in float32 in a model in bfloat16."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x.float(), self.weight)  # flaw: head_in_float32


def head_in_float32(flawed: bool, sizes: Sizes) -> Step:
    large = Config(6, 1024, 16, 4096, vocabulary=32768, context=512, batch=8)
    config = gpt.TINY if sizes.is_tiny else large
    model = seeded(lambda: GPT(config), sizes).bfloat16()
    if flawed:
        head = FloatHead(config.width, config.vocabulary, bias=False, device=sizes.device)
        head.load_state_dict(model.head.state_dict())
        model.head = head
    model.tokens.requires_grad_(False)
    model.positions.requires_grad_(False)
    tokens, targets = gpt.batch_of(config, sizes)
    trained = nn.ModuleList([model.blocks, model.norm, model.head])

    def loss() -> Tensor:
        return F.cross_entropy(model(tokens).float().flatten(0, 1), targets.flatten())

    return Step(training(loss, fused_adamw(trained), sizes, is_mixed=False))


class FloatNorm(nn.LayerNorm):
    """A norm in float32 in a model in bfloat16."""

    def forward(self, x: Tensor) -> Tensor:
        # flaw in the next line: norms_in_float32
        y = F.layer_norm(x.float(), self.normalized_shape, self.weight, self.bias)
        return y.to(x.dtype)  # flaw: norms_in_float32


class FrozenBlock(Block):
    """A block whose layers are frozen but for an adapter of low rank at its queries and keys."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.requires_grad_(False)
        self.low = nn.Linear(config.width, 16, bias=False)
        self.high = nn.Linear(16, 2 * config.width, bias=False)
        nn.init.zeros_(self.high.weight)

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        more_q, more_k = self.high(self.low(x)).chunk(2, -1)
        q, k, v = (self.split(each) for each in (q + more_q, k + more_k, v))
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))


def norms_in_float32(flawed: bool, sizes: Sizes) -> Step:
    large = Config(8, 1024, 16, 2048, vocabulary=8192, context=1024, batch=16)
    config = gpt.TINY if sizes.is_tiny else large
    model = seeded(lambda: GPT(config, FrozenBlock), sizes).bfloat16()
    if flawed:
        for norm in [each for each in model.modules() if isinstance(each, nn.LayerNorm)]:
            norm.__class__ = FloatNorm
            norm.float()
    tokens, targets = gpt.batch_of(config, sizes)
    adapters = nn.ModuleList(nn.ModuleList([block.low, block.high]) for block in model.blocks)
    for outer in (model.tokens, model.head, model.norm):
        outer.requires_grad_(False)
    model.positions.requires_grad_(False)

    def loss() -> Tensor:
        return F.cross_entropy(model(tokens).float().flatten(0, 1), targets.flatten())

    return Step(training(loss, fused_adamw(adapters), sizes, is_mixed=False))
