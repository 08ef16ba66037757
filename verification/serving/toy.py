"""A small Llama of torch ops, whose attention is an operator at which an engine cuts the graph.

``# line: NAME`` marks lines that :mod:`judging` knows. Layers run in ``ORDER``, not in the order
that they are held in: what is attributed by counting pieces gets the wrong layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

ORDER = (2, 0, 3, 1)
WIDTH, INNER, HEADS, WORDS = 64, 176, 4, 97
OPERATOR = "profiler_ext_serving::attend"


@torch.library.custom_op(OPERATOR, mutates_args=("out",))
def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
    """Write causal attention into ``out``; all are tokens by width."""
    parts = (each.view(-1, HEADS, WIDTH // HEADS).transpose(0, 1) for each in (q, k, v))
    done = F.scaled_dot_product_attention(*parts, is_causal=True)
    out.copy_(done.transpose(0, 1).reshape(out.shape))


@attend.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
    pass


class Norm(nn.Module):
    """RMSNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)  # line: scale
        return x * scale * self.weight  # line: normed


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up = nn.Linear(WIDTH, 2 * INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x).chunk(2, -1)  # line: gate_up
        x = F.silu(gate) * up  # line: gated
        return self.down(x)  # line: down


class SelfAttention(nn.Module):
    """Projections around the engine's attention."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)  # line: qkv
        q, k = q * angles.cos(), k * angles.sin()  # line: turned
        done = torch.empty_like(q)  # line: room
        torch.ops.profiler_ext_serving.attend(q, k, v, done)  # line: attention
        return self.out(done)  # line: out


class Layer(nn.Module):
    """One block."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = Norm(), Norm()
        self.attention = SelfAttention()
        self.mlp = Mlp()

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x), angles)  # line: attended
        return x + self.mlp(self.after(x))  # line: block


class Llama(nn.Module):
    """The model, for tokens and their positions."""

    def __init__(self, order: Sequence[int] = ORDER) -> None:
        super().__init__()
        self.order = tuple(order)
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in self.order)
        self.norm = Norm()

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.embedding(input_ids)  # line: embedded
        angles = positions[:, None].float()  # line: angles
        for at in self.order:
            x = self.layers[at](x, angles)
        return self.norm(x)
