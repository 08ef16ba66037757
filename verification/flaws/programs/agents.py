"""Flaws of policies, those that play and those that write."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Block, Config
from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "advantages_per_token",
    "encoder_for_each_head",
    "lengths_in_python",
    "logsumexp_by_row",
    "weights_quantized_each_call",
]


class RecurrentPolicy(nn.Module):
    """An LSTM over what is seen, with an actor and a critic."""

    def __init__(self, seen: int, acts: int, width: int) -> None:
        super().__init__()
        self.into = nn.Linear(seen, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.actor, self.critic = nn.Linear(width, acts), nn.Linear(width, 1)

    def forward(self, views: Tensor) -> tuple[Tensor, Tensor]:
        x, _ = self.lstm(F.relu(self.into(views)))
        return self.actor(x), self.critic(x).squeeze(-1)


def lengths_in_python(flawed: bool, sizes: Sizes) -> Step:
    seen, acts, width, batch, most = sizes.of((64, 8, 512, 128, 20), (5, 3, 8, 4, 6))
    model = seeded(lambda: RecurrentPolicy(seen, acts, width), sizes)
    views, aims = seeded(
        lambda: (torch.randn(4, batch, most, seen), torch.randn(4, batch, most)), sizes
    )
    moves = seeded(lambda: torch.randint(0, acts, (4, batch, most)), sizes)
    lengths = torch.arange(batch, device=sizes.device) % most + 1
    optimizer = fused_adamw(model)

    def loss_of(part: int) -> Tensor:
        if flawed:
            longest = int(max(lengths))  # flaw: lengths_in_python
            count: Tensor | int = sum(lengths)  # flaw: lengths_in_python
        else:
            longest, count = int(lengths.max()), lengths.sum()
        mask = torch.arange(longest, device=sizes.device) < lengths[:, None]
        scores, values = model(views[part, :, :longest])
        aim = aims[part, :, :longest]
        chosen = scores.log_softmax(-1).gather(2, moves[part, :, :longest, None]).squeeze(-1)
        each = (values - aim).square() - chosen * (aim - values.detach())
        return (each * mask).sum() / count

    def step() -> Tensor:
        for part in range(4):
            optimizer.zero_grad()
            loss = loss_of(part)
            loss.backward()
            optimizer.step()
        return loss.detach()

    return Step(step)


class FrameEncoder(nn.Module):
    """The convolutions of DQN over four frames."""

    def __init__(self, width: int, hidden: int, side: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(4, width, 8, 4),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 4, 2),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3),
            nn.ReLU(),
            nn.Flatten(),
        )
        left = (side // 4 - 1) // 2 - 3
        self.hidden = nn.Linear(2 * width * left * left, hidden)

    def forward(self, frames: Tensor) -> Tensor:
        return F.relu(self.hidden(self.convs(frames)))


class ActorCritic(nn.Module):
    """Two heads that share an encoder, which the flawed one runs for each of them."""

    def __init__(self, encoder: FrameEncoder, hidden: int, acts: int, runs_twice: bool) -> None:
        super().__init__()
        self.runs_twice = runs_twice
        self.encoder = encoder
        self.actor, self.critic = nn.Linear(hidden, acts), nn.Linear(hidden, 1)

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(frames)  # flaw: encoder_for_each_head
        scores = self.actor(features)
        if self.runs_twice:
            features = self.encoder(frames)  # flaw: encoder_for_each_head
        return scores, self.critic(features).squeeze(-1)


def encoder_for_each_head(flawed: bool, sizes: Sizes) -> Step:
    width, hidden, acts, batch, side = sizes.of((32, 512, 18, 4096, 84), (4, 8, 3, 4, 44))
    model = seeded(
        lambda: ActorCritic(FrameEncoder(width, hidden, side), hidden, acts, flawed), sizes
    )
    frames = seeded(lambda: torch.rand(batch, 4, side, side), sizes)
    moves, gains = seeded(lambda: (torch.randint(0, acts, (batch,)), torch.randn(batch)), sizes)

    def loss() -> Tensor:
        scores, values = model(frames)
        chosen = scores.float().log_softmax(-1).gather(1, moves[:, None]).squeeze(1)
        return -(chosen * gains).mean() + (values.float() - gains).square().mean()

    return Step(training(loss, fused_adamw(model), sizes))


class Writer(nn.Module):
    """A decoder with a head for words and one for values."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.value = nn.Linear(config.width, 1)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(self.blocks(self.tokens(tokens)))
        return self.head(x), self.value(x).squeeze(-1)


def writer_of(sizes: Sizes, large: Config) -> tuple[Writer, Tensor, Tensor]:
    """A writer, and texts whose next tokens it is to score."""
    config = gpt.TINY if sizes.is_tiny else large
    model = seeded(lambda: Writer(config), sizes)
    return model, *gpt.batch_of(config, sizes)


def advantages_in_loop(rewards: Tensor, values: Tensor) -> Tensor:
    """Generalised advantages from the last token to the first; discount and lambda are 1."""
    last = torch.zeros_like(rewards[:, 0])
    found = []
    for at in reversed(range(rewards.shape[1])):
        # flaw in the next line: advantages_per_token
        ahead = values[:, at + 1] if at + 1 < values.shape[1] else torch.zeros_like(last)
        delta = rewards[:, at] + ahead - values[:, at]  # flaw: advantages_per_token
        last = delta + last  # flaw: advantages_per_token
        found.append(last)
    return torch.stack(found[::-1], 1)  # flaw: advantages_per_token


def advantages(rewards: Tensor, values: Tensor) -> Tensor:
    """The same as sums of the rewards to go."""
    return rewards.flip(1).cumsum(1).flip(1) - values


def advantages_per_token(flawed: bool, sizes: Sizes) -> Step:
    large = Config(layers=6, width=768, vocabulary=8192, context=512, batch=16)
    model, texts, following = writer_of(sizes, large)
    rewards = seeded(lambda: torch.randn(texts.shape) * 0.01, sizes)

    def loss() -> Tensor:
        scores, values = model(texts)
        values = values.float()
        with torch.no_grad():
            gains = (advantages_in_loop if flawed else advantages)(rewards, values.detach())
            aims = gains + values.detach()
            gains = (gains - gains.mean()) / (gains.std() + 1e-6)
        losses = F.cross_entropy(scores.flatten(0, 1), following.flatten(), reduction="none")
        return (losses * gains.flatten()).mean() + 0.1 * F.mse_loss(values, aims)

    return Step(training(loss, fused_adamw(model), sizes))


def logprobs_by_row(scores: Tensor, following: Tensor) -> Tensor:
    """Log-probabilities of the tokens of each text, text by text."""
    found = []
    for row, tokens in zip(scores, following, strict=True):
        logprobs = row.log_softmax(-1)  # flaw: logsumexp_by_row
        # flaw in the next line: logsumexp_by_row
        found.append(logprobs.gather(-1, tokens[:, None]).squeeze(-1))
    return torch.stack(found)  # flaw: logsumexp_by_row


def logprobs_at_once(scores: Tensor, following: Tensor) -> Tensor:
    losses = F.cross_entropy(scores.flatten(0, 1), following.flatten(), reduction="none")
    return -losses.unflatten(0, following.shape)


def logsumexp_by_row(flawed: bool, sizes: Sizes) -> Step:
    large = Config(4, 512, 8, 2048, vocabulary=16384, context=32, batch=384)
    model, texts, following = writer_of(sizes, large)
    gains = seeded(lambda: torch.randn(len(texts), 1), sizes)
    logprobs = logprobs_by_row if flawed else logprobs_at_once

    def loss() -> Tensor:
        found = logprobs(model(texts)[0], following)
        with torch.no_grad():
            before = found.detach()
        return -((found - before).exp() * gains + 0.05 * found).mean()

    return Step(training(loss, fused_adamw(model), sizes))


class QuantizedLinear(nn.Linear):
    """A layer whose weights are rounded to 8 bits for each row, in each call or once."""

    is_rounded = False

    @torch.no_grad()
    def rounded(self) -> Tensor:
        scale = self.weight.abs().amax(1, keepdim=True) / 127  # flaw: weights_quantized_each_call
        levels = (self.weight / scale).round()  # flaw: weights_quantized_each_call
        return levels.clamp(-127, 127) * scale  # flaw: weights_quantized_each_call

    def keep(self) -> None:
        """Round once, for inference."""
        self.weight.data = self.rounded()
        self.is_rounded = True

    def forward(self, x: Tensor) -> Tensor:
        # flaw in the next line: weights_quantized_each_call
        weight = self.weight if self.is_rounded else self.rounded()
        return F.linear(x, weight, self.bias)


def weights_quantized_each_call(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch = sizes.of((3072, 8, 256), (16, 2, 3))
    model = seeded(
        lambda: nn.Sequential(
            *(
                nn.Sequential(
                    nn.LayerNorm(width),
                    QuantizedLinear(width, 4 * width),
                    nn.GELU(),
                    QuantizedLinear(4 * width, width),
                )
                for _ in range(depth)
            )
        ),
        sizes,
    )
    model = model.eval().bfloat16()
    x = seeded(lambda: torch.randn(batch, width), sizes).bfloat16()
    for layer in model.modules():
        if isinstance(layer, QuantizedLinear) and not flawed:
            layer.keep()

    @torch.inference_mode()
    def step() -> Tensor:
        y = x
        for block in model:
            y = y + block(y)
        return y.float().square().mean()

    return Step(step)
