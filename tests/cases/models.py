"""The small models that the cases share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(attended.transpose(1, 2).reshape(batch, tokens, width))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, width, dropout=0.0):
        super().__init__()
        self.norm_1 = nn.LayerNorm(width)
        self.attention = Attention(width)
        self.norm_2 = nn.LayerNorm(width)
        self.mlp = MLP(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm_1(x)))
        return x + self.dropout(self.mlp(self.norm_2(x)))


class GPT(nn.Module):
    def __init__(self, layers=2, width=64, vocabulary=256, tokens=64, dropout=0.0):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def features(self, tokens):
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = self.around(block, x)
        return self.head(self.norm(x))

    def around(self, block, x):
        return block(x)

    def forward(self, tokens, targets):
        logits = self.features(tokens)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class CNN(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.conv_1 = nn.Conv2d(3, channels, 3, padding=1)
        self.bn_1 = nn.BatchNorm2d(channels)
        self.conv_2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn_2 = nn.BatchNorm2d(channels)
        self.fc = nn.Linear(channels, 10)

    def forward(self, images, labels):
        x = F.relu(self.bn_1(self.conv_1(images)))
        x = F.relu(self.bn_2(self.conv_2(x)) + x)
        return F.cross_entropy(self.fc(x.mean((2, 3))), labels)


def tokens(device, batch=4, length=64, vocabulary=256):
    torch.manual_seed(0)
    ids = torch.randint(vocabulary, (batch, length + 1), device=device)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def training(model, *inputs, compiled=None, optimizer=None, update=None, **autocast):
    """Return a step: forward, backward, and an update if there is an optimizer."""
    compiled = torch.compile(model) if compiled is None else compiled
    update = update or (optimizer.step if optimizer else lambda: None)
    device = next(model.parameters()).device.type

    def step():
        model.zero_grad()
        with torch.autocast(device, torch.bfloat16, **{"enabled": False, **autocast}):
            loss = compiled(*inputs)
        loss.backward()
        update()

    return step
