"""Flaws of policies, of experts, of critics and of what updates and counts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, autocast, fused_adamw, seeded, training

__all__ = [
    "counts_of_padding",
    "generated_again_for_critic",
    "inputs_repeated_for_experts",
    "old_policy_by_forward",
    "step_counters_moved",
    "threshold_by_kthvalue",
]


class Policy(nn.Module):
    """A small language model."""

    def __init__(self, words: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.heads, self.embed = heads, nn.Embedding(words, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.qkvs = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(depth))
        self.outs = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.ups = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(depth))
        self.downs = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(depth))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for at, (qkv, out) in enumerate(zip(self.qkvs, self.outs, strict=True)):
            y = qkv(self.norms[2 * at](x)).unflatten(2, (3, self.heads, -1))
            q, k, v = y.permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + out(y.transpose(1, 2).flatten(2))
            y = self.ups[at](self.norms[2 * at + 1](x))
            x = x + self.downs[at](F.gelu(y))
        return self.head(x)


def chances(policy: Policy, tokens: Tensor) -> Tensor:
    """The log-probability of each word."""
    scores = policy(tokens[:, :-1]).float()
    return -F.cross_entropy(scores.transpose(1, 2), tokens[:, 1:], reduction="none")


def old_policy_by_forward(flawed: bool, sizes: Sizes) -> Step:
    batch, length, words, width, heads, depth = sizes.of(
        (8, 512, 32_000, 768, 12, 6), (2, 6, 20, 8, 2, 1)
    )
    policy = seeded(lambda: Policy(words, width, heads, depth), sizes)
    tokens, advantages = seeded(
        lambda: (torch.randint(0, words, (batch, length + 1)), torch.randn(batch, 1)), sizes
    )

    def loss() -> Tensor:
        if flawed:
            with torch.no_grad():
                old = chances(policy, tokens)  # flaw: old_policy_by_forward
            new = chances(policy, tokens)  # flaw: old_policy_by_forward
        else:
            new = chances(policy, tokens)
            old = new.detach()
        ratio = (new - old).exp()
        gains = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        return -gains.mean()

    return Step(training(loss, fused_adamw(policy), sizes))


def moved(optimizer: torch.optim.Optimizer, device: str, every: bool) -> None:
    """Puts the state of an optimizer on the device."""
    for state in optimizer.state.values():
        for key, value in state.items():
            if torch.is_tensor(value) and (every or key != "step"):
                state[key] = value.to(device, non_blocking=True)  # flaw: step_counters_moved


def step_counters_moved(flawed: bool, sizes: Sizes) -> Step:
    batch, length, words, width, heads, depth = sizes.of(
        (4, 256, 4096, 384, 6, 16), (2, 4, 20, 8, 2, 2)
    )
    policy = seeded(lambda: Policy(words, width, heads, depth), sizes)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)
    tokens = seeded(lambda: torch.randint(0, words, (batch, length + 1)), sizes)

    def step() -> Tensor:
        moved(optimizer, sizes.device, flawed)
        optimizer.zero_grad(set_to_none=True)
        with autocast(sizes):
            loss = -chances(policy, tokens).mean()
        loss.backward()
        optimizer.step()  # flaw: step_counters_moved
        return loss.detach()

    return Step(step)


class Generator(nn.Module):
    """Images of noise."""

    def __init__(self, noise: int, width: int) -> None:
        super().__init__()
        self.width, self.into = width, nn.Linear(noise, 8 * width * 16)
        self.ups = nn.Sequential(
            nn.ConvTranspose2d(8 * width, 4 * width, 4, 2, 1), nn.BatchNorm2d(4 * width), nn.ReLU(),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 3, 3, padding=1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, z: Tensor) -> Tensor:
        return self.ups(self.into(z).view(-1, 8 * self.width, 4, 4))


def generated_again_for_critic(flawed: bool, sizes: Sizes) -> Step:
    batch, noise, width = sizes.of((256, 128, 96), (4, 4, 2))
    generator = seeded(lambda: Generator(noise, width), sizes)
    critic = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(),
            nn.Linear(4 * width * 16, 1),
        ),
        sizes,
    )  # fmt: skip
    optimizers = fused_adamw(generator), fused_adamw(critic)
    real, z = seeded(lambda: (torch.randn(batch, 3, 32, 32), torch.randn(batch, noise)), sizes)

    def step() -> Tensor:
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        with autocast(sizes):
            made = generator(z)  # flaw: generated_again_for_critic
            critic_loss = (
                F.softplus(-critic(real)).mean() + F.softplus(critic(made.detach())).mean()
            )
        critic_loss.backward()
        optimizers[1].step()
        critic.requires_grad_(False)
        with autocast(sizes):
            if flawed:
                made = generator(z)  # flaw: generated_again_for_critic
            loss = F.softplus(-critic(made)).mean()
        loss.backward()
        critic.requires_grad_(True)
        optimizers[0].step()
        return (loss + critic_loss).detach().float()

    return Step(step)


class Experts(nn.Module):
    """Each word goes to some of the experts, which all take as many."""

    def __init__(self, width: int, inner: int, experts: int, repeated: bool) -> None:
        super().__init__()
        self.repeated, self.gate = repeated, nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, inner) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, width) * inner**-0.5)

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        count = chosen.shape[1]
        weights = self.gate(x).softmax(-1).gather(1, chosen)
        order = chosen.flatten().argsort(stable=True)
        if self.repeated:
            every = x.repeat_interleave(count, 0)  # flaw: inputs_repeated_for_experts
            taken = every.index_select(0, order)  # flaw: inputs_repeated_for_experts
        else:
            taken = x.index_select(0, order // count)
        grouped = taken.view(len(self.up), -1, x.shape[1])
        y = (F.relu(grouped @ self.up) @ self.down).flatten(0, 1)
        back = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=x.device))
        y = y.index_select(0, back).view(-1, count, x.shape[1])
        return x + (weights[..., None] * y).sum(1)


def inputs_repeated_for_experts(flawed: bool, sizes: Sizes) -> Step:
    words, width, inner, experts, count, depth = sizes.of(
        (16_384, 1024, 256, 32, 8, 3), (8, 4, 3, 4, 2, 2)
    )
    layers = seeded(
        lambda: nn.ModuleList(Experts(width, inner, experts, flawed) for _ in range(depth)), sizes
    ).bfloat16()
    x, wanted = seeded(lambda: (torch.randn(words, width), torch.randn(words, width)), sizes)
    start = seeded(lambda: torch.randperm(words), sizes)
    chosen = (start[:, None] + torch.arange(count, device=sizes.device)) % experts
    x = x.bfloat16()

    def loss() -> Tensor:
        y = x
        for layer in layers:
            y = layer(y, chosen)  # flaw: inputs_repeated_for_experts
        return F.mse_loss(y.float(), wanted)

    return Step(training(loss, fused_adamw(layers), sizes, is_mixed=False))


def threshold_by_kthvalue(flawed: bool, sizes: Sizes) -> Step:
    batch, width, depth = sizes.of((4096, 1024, 4), (4, 6, 2))
    model = seeded(
        lambda: nn.Sequential(
            *(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth))
        ),
        sizes,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, wanted = seeded(lambda: (torch.randn(batch, width), torch.randn(batch, width)), sizes)

    def only_largest() -> None:
        """Leaves out all but the largest hundredth of the gradients."""
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        sizes_of_all = torch.cat([each.flatten() for each in gradients]).abs()
        place = int(0.99 * len(sizes_of_all))
        if flawed:
            limit = torch.kthvalue(sizes_of_all, place).values  # flaw: threshold_by_kthvalue
        else:
            limit = sizes_of_all.sort().values[place - 1]
        for each in gradients:
            each.mul_(each.abs() > limit)

    def loss() -> Tensor:
        return F.mse_loss(model(x).float(), wanted)

    return Step(training(loss, optimizer, sizes, after_backward=(only_largest,)))


def counts_of_padding(flawed: bool, sizes: Sizes) -> Step:
    texts, length, words, width = sizes.of((8192, 1024, 50_000, 256), (6, 8, 12, 4))
    embed = seeded(lambda: nn.EmbeddingBag(words, width, mode="mean"), sizes)
    head = seeded(lambda: nn.Linear(width, words), sizes)
    tokens, lengths, wanted = seeded(
        lambda: (
            torch.randint(1, words, (texts, length)),
            torch.randint(1, max(length // 8, 2), (texts, 1)),
            torch.randint(1, words, (min(texts, 512),)),
        ),
        sizes,
    )
    is_text = torch.arange(length, device=sizes.device) < lengths
    tokens = torch.where(is_text, tokens, 0)

    def loss() -> Tensor:
        if flawed:
            counts = torch.bincount(tokens.flatten(), minlength=words)  # flaw: counts_of_padding
        else:
            every = torch.arange(words + 1, device=tokens.device)
            counts = torch.searchsorted(tokens.flatten().sort().values, every).diff()
        prior = (counts + 1).float().log()
        scores = head(embed(tokens[: len(wanted), : min(64, length)]))
        return F.cross_entropy(scores.float() + prior, wanted)

    return Step(training(loss, fused_adamw(nn.ModuleList((embed, head))), sizes))
