"""A small GPT trained with forward, backward and update under torch.compile.

profiler-ext run examples/gpt.py [--layers N] [--width N] [--tokens N] [--batch N]
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 1024


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(attended.transpose(1, 2).reshape(batch, tokens, width))


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm_2 = nn.LayerNorm(width)
        self.mlp = MLP(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, tokens: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def train(options: argparse.Namespace, device: str) -> None:
    model = GPT(options.layers, options.width, options.heads, options.tokens).to(device)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    update = torch.compile(optimizer.step)
    batch = torch.randint(VOCABULARY, (options.batch, options.tokens + 1), device=device)
    for _ in range(options.steps):
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = compiled(batch[:, :-1], batch[:, 1:])
        loss.backward()
        update()
        optimizer.zero_grad()
    print(f"loss {loss.item():.4f}")


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=12 if on_gpu else 2)
    parser.add_argument("--width", type=int, default=768 if on_gpu else 128)
    parser.add_argument("--heads", type=int, default=12 if on_gpu else 4)
    parser.add_argument("--tokens", type=int, default=1024 if on_gpu else 64)
    parser.add_argument("--batch", type=int, default=8 if on_gpu else 4)
    parser.add_argument("--steps", type=int, default=8)
    torch.manual_seed(0)
    train(parser.parse_args(), "cuda" if on_gpu else "cpu")


if __name__ == "__main__":
    main()
