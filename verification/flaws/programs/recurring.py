"""Flaws of programs that go on step by step, and of scenes and sounds."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "block_table_by_item",
    "cross_cache_reordered",
    "grouped_transposed_conv",
    "harmonics_concatenated",
    "loss_per_moment",
    "rollout_through_numpy",
    "static_cache_too_long",
]


class Part(nn.Module):
    """Norms, projections and MLP of a decoder's block; attention comes from without."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values (batch, tokens, heads, channels)."""
        return self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)

    def after(self, x: Tensor, seen: Tensor) -> Tensor:
        """The rest of the block, from what attention saw (batch, heads, tokens, channels)."""
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def parts(sizes: Sizes, width: int, heads: int, depth: int) -> nn.ModuleList:
    """Blocks of a decoder for inference in bfloat16."""
    made = seeded(lambda: nn.ModuleList(Part(width, heads) for _ in range(depth)), sizes)
    return made.eval().bfloat16().requires_grad_(False)


def slots_by_item(table: Tensor, lengths: Tensor, page: int, longest: int) -> Tensor:
    """Where keys of each text lie, read from the table of pages entry by entry."""
    rows = []
    for text in range(len(table)):
        length = int(lengths[text].item())  # flaw: block_table_by_item
        slots = []
        for at in range(-(-length // page)):
            first = int(table[text, at].item()) * page  # flaw: block_table_by_item
            slots.extend(range(first, first + page))
        rows.append(slots[:length] + [0] * (longest - length))
    return torch.tensor(rows, device=table.device)  # flaw: block_table_by_item


def slots_at_once(table: Tensor, lengths: Tensor, page: int, longest: int) -> Tensor:
    """The same on the device."""
    places = torch.arange(longest, device=table.device)
    slots = table[:, places // page] * page + places % page
    return slots * (places < lengths[:, None])


def block_table_by_item(flawed: bool, sizes: Sizes) -> Step:
    width, heads, depth, batch, page = sizes.of((1024, 16, 24, 16, 16), (8, 2, 2, 2, 2))
    longest, count = sizes.of((384, 4), (6, 2))
    layers = parts(sizes, width, heads, depth)
    pages = longest // page
    table = seeded(lambda: torch.randperm(batch * pages), sizes).view(batch, pages)
    lengths = longest // 2 + torch.arange(batch, device=sizes.device) * longest // (2 * batch)
    cache = seeded(
        lambda: torch.randn(depth, 2, batch * longest, heads, width // heads) / 4, sizes
    ).bfloat16()
    tokens = seeded(lambda: torch.randn(batch, 1, width), sizes).bfloat16()
    find = slots_by_item if flawed else slots_at_once

    def reply(x: Tensor) -> Tensor:
        slots = find(table, lengths, page, longest)  # flaw: block_table_by_item
        hidden = torch.arange(longest, device=x.device) >= lengths[:, None]
        mask = torch.zeros_like(hidden, dtype=x.dtype).masked_fill(hidden, -torch.inf)
        for layer, known in zip(layers, cache, strict=True):
            q, _, _ = layer.split(x)
            k, v = (each.transpose(1, 2) for each in known[:, slots])
            seen = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, mask[:, None, None])
            x = layer.after(x, seen)
        return x

    @torch.inference_mode()
    def step() -> Tensor:
        x = tokens
        for _ in range(count):
            x = F.normalize(reply(x), dim=-1) * width**0.5
        return x.float().abs().mean()

    return Step(step)


def cross_cache_reordered(flawed: bool, sizes: Sizes) -> Step:
    width, heads, depth, texts, beams = sizes.of((1024, 16, 12, 8, 5), (8, 2, 2, 2, 2))
    frames, count, words = sizes.of((1000, 4, 8192), (5, 2, 12))
    layers = parts(sizes, width, heads, depth)
    shape = (texts, heads, frames, width // heads)
    sound = seeded(lambda: torch.randn(depth, 2, *shape), sizes).bfloat16()
    sound = sound.repeat_interleave(beams, 2)
    embedding = seeded(lambda: torch.randn(words, width) * 0.1, sizes).bfloat16()
    first = torch.full((texts, beams), -1e4, device=sizes.device)
    first[:, 0] = 0
    offsets = torch.arange(texts, device=sizes.device)[:, None] * beams

    def scored(tokens: Tensor, cross: list[Tensor]) -> Tensor:
        x = embedding[tokens][:, None]
        for layer, (k, v) in zip(layers, cross, strict=True):
            q, _, _ = layer.split(x)
            x = layer.after(x, F.scaled_dot_product_attention(q.transpose(1, 2), k, v))
        return (x.squeeze(1) @ embedding.T).float().log_softmax(-1)

    @torch.inference_mode()
    def step() -> Tensor:
        cross = list(sound.unbind())
        scores = first
        tokens = torch.zeros(texts * beams, dtype=torch.long, device=sizes.device)
        for _ in range(count):
            total = scores[..., None] + scored(tokens, cross).view(texts, beams, -1)
            scores, chosen = total.flatten(1).topk(beams)
            tokens = (chosen % words).flatten()
            order = (chosen // words + offsets).flatten()
            if flawed:
                # flaw in the next line: cross_cache_reordered
                cross = [each.index_select(1, order) for each in cross]
        return scores.mean()

    return Step(step)


def static_cache_too_long(flawed: bool, sizes: Sizes) -> Step:
    width, heads, depth, batch = sizes.of((1024, 16, 24, 8), (8, 2, 2, 2))
    known, count = sizes.of((200, 6), (3, 2))
    # flaw in the next line: static_cache_too_long
    length = sizes.of(8192, 40) if flawed else sizes.of(256, 8)
    layers = parts(sizes, width, heads, depth)
    shape = (depth, 2, batch, heads, length, width // heads)
    cache = torch.zeros(shape, device=sizes.device, dtype=torch.bfloat16)
    read = seeded(lambda: torch.randn(depth, 2, batch, heads, known, width // heads), sizes)
    cache[:, :, :, :, :known] = read
    tokens = seeded(lambda: torch.randn(batch, 1, width), sizes).bfloat16()
    places = torch.arange(length, device=sizes.device)

    def reply(x: Tensor, at: int) -> Tensor:
        mask = (places <= at)[None, None, None]  # flaw: static_cache_too_long
        for layer, (keys, values) in zip(layers, cache, strict=True):
            q, k, v = (each.transpose(1, 2) for each in layer.split(x))
            keys[:, :, at : at + 1], values[:, :, at : at + 1] = k, v
            # flaw in the next line: static_cache_too_long
            x = layer.after(x, F.scaled_dot_product_attention(q, keys, values, mask))
        return x

    @torch.inference_mode()
    def step() -> Tensor:
        x = tokens
        for at in range(known, known + count):
            x = F.normalize(reply(x, at), dim=-1) * width**0.5
        return x.float().abs().mean()

    return Step(step)


class Translator(nn.Module):
    """Two GRUs from sentence to sentence, and scores of words."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.encoder = nn.GRU(width, width, 2, batch_first=True)
        self.decoder = nn.GRU(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        _, state = self.encoder(self.source(source))
        x, _ = self.decoder(self.target(target), state)
        return self.head(x)


def loss_per_moment(flawed: bool, sizes: Sizes) -> Step:
    words, width, batch, length = sizes.of((8192, 512, 64, 80), (12, 8, 2, 4))
    model = seeded(lambda: Translator(words, width), sizes)
    source, target = seeded(lambda: torch.randint(0, words, (2, batch, length + 1)), sizes)

    def loss() -> Tensor:
        scores = model(source, target[:, :-1])
        if not flawed:
            return F.cross_entropy(scores.flatten(0, 1), target[:, 1:].flatten())
        total = torch.zeros((), device=sizes.device)
        for now, word in zip(scores.unbind(1), target[:, 1:].unbind(1), strict=True):
            likely = F.log_softmax(now, 1)  # flaw: loss_per_moment
            total = total + F.nll_loss(likely, word)  # flaw: loss_per_moment
        return total / length

    return Step(training(loss, fused_adamw(model), sizes))


class Carts(nn.Module):
    """A simulator of many small robots on the device, and nothing to learn."""

    def __init__(self, count: int, channels: int) -> None:
        super().__init__()
        self.register_buffer("start", torch.randn(count, channels))
        self.register_buffer("pull", torch.randn(12, channels) * 0.3)

    def forward(self, state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        state = 0.95 * state + actions @ self.pull
        return state, -state.square().mean(1)


class Policy(nn.Module):
    """Actions and a value from what is seen."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(channels, width), nn.ELU(), nn.Linear(width, width), nn.ELU()
        )
        self.actions, self.value = nn.Linear(width, 12), nn.Linear(width, 1)

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(seen)
        return self.actions(x).tanh(), self.value(x).squeeze(1)


def gathered_by_numpy(carts: Carts, policy: Policy, noise: Tensor) -> tuple[Tensor, ...]:
    """A rollout whose observations, actions and rewards are kept by numpy."""
    device = noise.device
    seen = carts.start.cpu().numpy()  # flaw: rollout_through_numpy
    kept: list[tuple[np.ndarray, ...]] = []
    for each in noise:
        actions, _ = policy(torch.as_tensor(seen, device=device))  # flaw: rollout_through_numpy
        chosen = (actions + each).cpu().numpy()  # flaw: rollout_through_numpy
        # flaw in the next line: rollout_through_numpy
        clipped = torch.as_tensor(np.clip(chosen, -1, 1), device=device)
        state, rewards = carts(torch.as_tensor(seen, device=device), clipped)
        kept.append((seen, chosen, rewards.cpu().numpy()))  # flaw: rollout_through_numpy
        seen = state.cpu().numpy()  # flaw: rollout_through_numpy
    # flaw in the next line: rollout_through_numpy
    stacked = (np.concatenate(each) for each in zip(*kept, strict=True))
    # flaw in the next line: rollout_through_numpy
    return tuple(torch.as_tensor(each, device=device) for each in stacked)


def gathered(carts: Carts, policy: Policy, noise: Tensor) -> tuple[Tensor, ...]:
    """The same, kept on the device."""
    seen, kept = carts.start, []
    for each in noise:
        actions, _ = policy(seen)
        chosen = actions + each
        state, rewards = carts(seen, chosen.clamp(-1, 1))
        kept.append((seen, chosen, rewards))
        seen = state
    return tuple(torch.cat(each) for each in zip(*kept, strict=True))


def rollout_through_numpy(flawed: bool, sizes: Sizes) -> Step:
    count, channels, width, moments, rows = sizes.of((4096, 48, 256, 24, 8), (6, 5, 8, 3, 2))
    carts = seeded(lambda: Carts(count, channels), sizes)
    policy = seeded(lambda: Policy(channels, width), sizes)
    noise = seeded(lambda: torch.randn(moments, count, 12) * 0.2, sizes)
    gather, optimizer = gathered_by_numpy if flawed else gathered, fused_adamw(policy)

    def step() -> Tensor:
        with torch.no_grad():
            batch = gather(carts, policy, noise)  # flaw: rollout_through_numpy
        for seen, chosen, rewards in zip(*(each.chunk(rows) for each in batch), strict=True):
            optimizer.zero_grad(set_to_none=True)
            actions, values = policy(seen)
            gain = (rewards - values.detach()).clamp(-1, 1)
            loss = ((actions - chosen).square().mean(1) * gain).mean()
            loss = loss + F.mse_loss(values, rewards)
            loss.backward()
            optimizer.step()
        return loss.detach()

    return Step(step)


CONSTANT = 0.28209479177387814


def coloured_from_cat(first: Tensor, rest: Tensor, basis: Tensor) -> Tensor:
    """Colours of splats from all harmonics, which are put together first."""
    harmonics = torch.cat((first, rest), 1)  # flaw: harmonics_concatenated
    return (basis[..., None] * harmonics).sum(1)  # flaw: harmonics_concatenated


def coloured(first: Tensor, rest: Tensor, basis: Tensor) -> Tensor:
    """The same from both parts."""
    return CONSTANT * first.squeeze(1) + (basis[:, 1:, None] * rest).sum(1)


def harmonics_concatenated(flawed: bool, sizes: Sizes) -> Step:
    count, pixels, views = sizes.of((2_000_000, 480_000, 2), (20, 12, 2))
    first, rest, basis, places = seeded(
        lambda: (
            nn.Parameter(torch.randn(count, 1, 3)),
            nn.Parameter(torch.randn(count, 15, 3) * 0.1),
            torch.randn(views, count, 16),
            torch.randint(0, pixels, (views, count)),
        ),
        sizes,
    )
    basis[..., 0] = CONSTANT
    opacity = seeded(lambda: nn.Parameter(torch.rand(count, 1)), sizes)
    truth = seeded(lambda: torch.rand(views, pixels, 3), sizes)
    optimizer = torch.optim.Adam((first, rest, opacity), lr=1e-3, fused=True)
    colour = coloured_from_cat if flawed else coloured

    def loss() -> Tensor:
        total = torch.zeros((), device=sizes.device)
        for view in range(views):
            colours = (colour(first, rest, basis[view]) + 0.5).relu()
            splats = colours * opacity.sigmoid()
            image = torch.zeros_like(truth[view]).index_add(0, places[view], splats)
            total = total + F.l1_loss(image, truth[view])
        return total

    return Step(training(loss, optimizer, sizes, is_mixed=False))


class ShiftedUp(nn.ConvTranspose1d):
    """A depthwise transposed convolution of kernel 4 and stride 2, from shifts of its input."""

    def forward(self, x: Tensor) -> Tensor:
        taps, bias = self.weight[:, 0].to(x.dtype), self.bias[:, None].to(x.dtype)
        padded = F.pad(x, (1, 1))
        even = torch.addcmul(torch.addcmul(bias, x, taps[:, 1:2]), padded[..., :-2], taps[:, 3:])
        odd = torch.addcmul(torch.addcmul(bias, x, taps[:, 2:3]), padded[..., 2:], taps[:, :1])
        return torch.stack((even, odd), -1).flatten(-2)


class GroupedUp(nn.ConvTranspose1d):
    """The same by the library."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)  # flaw: grouped_transposed_conv


def grouped_transposed_conv(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, frames = sizes.of((512, 3, 16, 512), (4, 1, 2, 6))
    kind = GroupedUp if flawed else ShiftedUp

    def make() -> nn.Sequential:
        layers: list[nn.Module] = [nn.Conv1d(80, width, 7, padding=3)]
        for _ in range(depth):
            layers += [
                nn.GELU(),
                kind(width, width, 4, 2, 1, groups=width),
                nn.Conv1d(width, width, 3, padding=1),
            ]
        return nn.Sequential(*layers, nn.GELU(), nn.Conv1d(width, 32, 7, padding=3))

    model = seeded(make, sizes)
    mels = seeded(lambda: torch.randn(batch, 80, frames), sizes)
    waves = seeded(lambda: torch.randn(batch, 32, frames << depth), sizes)
    return Step(training(lambda: F.l1_loss(model(mels), waves), fused_adamw(model), sizes))
