"""Flaws of networks for voices, series of numbers and texts, and of what measures them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "alignment_cell_by_cell",
    "cache_restored_each_token",
    "errors_measured_twice",
    "real_waves_judged_twice",
    "sampled_keys_expanded",
    "words_unique_on_cpu",
]


class Judge(nn.Module):
    """Tells real from made waves of one rate."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv1d(1, width, 11, padding=5), nn.LeakyReLU(0.1),
            nn.Conv1d(width, 4 * width, 11, stride=4, padding=5), nn.LeakyReLU(0.1),
            nn.Conv1d(4 * width, 8 * width, 11, stride=4, padding=5), nn.LeakyReLU(0.1),
            nn.Conv1d(8 * width, 1, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.convs(x)


def judged(score: Tensor, made: Tensor) -> Tensor:
    """The loss of a judge."""
    return (1 - score).square().mean() + made.square().mean()


def real_waves_judged_twice(flawed: bool, sizes: Sizes) -> Step:
    batch, length, width, scales = sizes.of((16, 16_384, 64, 3), (2, 64, 2, 2))
    judges = seeded(lambda: nn.ModuleList(Judge(width) for _ in range(scales)), sizes)
    real, made = seeded(
        lambda: (torch.randn(batch, 1, length), torch.randn(batch, 1, length)), sizes
    )
    lower = [F.avg_pool1d(real, 2**at) for at in range(scales)]
    by_scale = [0.5 * F.avg_pool1d(made, 2**at) for at in range(scales)]
    pooled = [F.avg_pool1d(made, 2**at) for at in range(scales)]

    def loss() -> Tensor:
        total = real.new_zeros(())
        for judge, wave, own, below in zip(judges, lower, by_scale, pooled, strict=True):
            score = judge(wave)  # flaw: real_waves_judged_twice
            total = total + judged(score, judge(own))
            if flawed:
                score = judge(wave)  # flaw: real_waves_judged_twice
            total = total + judged(score, judge(below))
        return total.float()

    return Step(training(loss, fused_adamw(judges), sizes))


FAR = 1e8


def aligned_by_cell(costs: Tensor, gamma: float) -> Tensor:
    """The soft cost of the best alignment, cell by cell."""
    _, rows, columns = costs.shape
    far = torch.full_like(costs[:, 0, 0], FAR)
    table = [[far] * (columns + 1) for _ in range(rows + 1)]
    table[0][0] = torch.zeros_like(far)
    for i in range(rows):
        for j in range(columns):
            # flaw in the next line: alignment_cell_by_cell
            before = torch.stack((table[i][j], table[i][j + 1], table[i + 1][j]), -1)
            # flaw in the next line: alignment_cell_by_cell
            least = -gamma * torch.logsumexp(-before / gamma, -1)
            table[i + 1][j + 1] = costs[:, i, j] + least  # flaw: alignment_cell_by_cell
    return table[rows][columns]


def aligned_by_diagonal(costs: Tensor, gamma: float) -> Tensor:
    """The same, all cells of a diagonal at once."""
    batch, rows, columns = costs.shape
    row = torch.arange(rows, device=costs.device)[:, None]
    column = torch.arange(rows + columns - 1, device=costs.device) - row
    is_inside = (column >= 0) & (column < columns)
    skewed = costs.gather(2, column.clamp(0, columns - 1).expand(batch, -1, -1))
    edge = torch.full_like(costs[:, :1, 0], FAR)
    last = torch.full((batch, rows + 1), FAR, device=costs.device)
    older = torch.cat((torch.zeros_like(edge), last[:, 1:]), 1)
    for at in range(rows + columns - 1):
        before = torch.stack((older[:, :-1], last[:, :-1], last[:, 1:]), -1)
        own = skewed[:, :, at] - gamma * torch.logsumexp(-before / gamma, -1)
        own = torch.where(is_inside[:, at], own, FAR)
        older, last = last, torch.cat((edge, own), 1)
    return last[:, -1]


def alignment_cell_by_cell(flawed: bool, sizes: Sizes) -> Step:
    batch, moments, width = sizes.of((256, 20, 256), (3, 4, 8))
    model = seeded(
        lambda: nn.Sequential(nn.Linear(48, width), nn.Tanh(), nn.Linear(width, moments)), sizes
    )
    past, wanted = seeded(lambda: (torch.randn(batch, 48), torch.randn(batch, moments)), sizes)
    aligned = aligned_by_cell if flawed else aligned_by_diagonal

    def loss() -> Tensor:
        costs = (model(past)[:, :, None] - wanted[:, None]).square()
        return aligned(costs, 0.1).mean()  # flaw: alignment_cell_by_cell

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class SampledAttention(nn.Module):
    """The queries that matter most, by a sample of the keys, attend to all keys."""

    def __init__(self, width: int, heads: int, drawn: int, expanded: bool) -> None:
        super().__init__()
        self.heads, self.drawn, self.expanded = heads, drawn, expanded
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        length, scale = x.shape[1], q.shape[-1] ** -0.5
        sample = torch.randint(0, length, (length, self.drawn), device=x.device)
        if self.expanded:
            every = k[:, :, None].expand(-1, -1, length, -1, -1)
            rows = torch.arange(length, device=x.device)[:, None]
            keys = every[:, :, rows, sample]  # flaw: sampled_keys_expanded
            seen = (q[..., None, :] @ keys.mT).squeeze(-2)  # flaw: sampled_keys_expanded
        else:
            seen = (q @ k.mT).gather(-1, sample.expand(*q.shape[:2], -1, -1))
        weight = seen.amax(-1) - seen.sum(-1) / length
        best = weight.topk(self.drawn).indices[..., None].expand(-1, -1, -1, q.shape[-1])
        scores = (q.gather(2, best) @ k.mT * scale).softmax(-1)
        y = v.mean(2, keepdim=True).expand_as(v).scatter(2, best, scores @ v)
        return x + self.out(y.transpose(1, 2).flatten(2))


def sampled_keys_expanded(flawed: bool, sizes: Sizes) -> Step:
    batch, length, width, heads, drawn, depth = sizes.of(
        (16, 336, 512, 8, 30, 3), (2, 6, 8, 2, 3, 1)
    )
    layers = seeded(
        lambda: nn.Sequential(
            *(SampledAttention(width, heads, drawn, flawed) for _ in range(depth))
        ),
        sizes,
    )
    x, wanted = seeded(
        lambda: (torch.randn(batch, length, width), torch.randn(batch, length, width)), sizes
    )

    def loss() -> Tensor:
        return F.mse_loss(layers(x), wanted)  # flaw: sampled_keys_expanded

    return Step(training(loss, fused_adamw(layers), sizes, is_mixed=False))


def words_unique_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    batch, length, width, known, likely = sizes.of((64, 64, 512, 40_000, 40), (2, 4, 8, 30, 3))
    embed = seeded(lambda: nn.Embedding(known, width), sizes)
    encoder = seeded(lambda: nn.GRU(width, width, batch_first=True), sizes)
    out = seeded(lambda: nn.Parameter(torch.randn(known, width) * width**-0.5), sizes)
    tokens, targets, lexicon = seeded(
        lambda: (
            torch.randint(0, known, (batch, length)),
            torch.randint(0, known, (batch, length)),
            torch.randint(0, known, (known, likely)) % max(known // 5, 2),
        ),
        sizes,
    )
    weights = nn.ParameterList((*embed.parameters(), *encoder.parameters(), out))
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)

    def loss() -> Tensor:
        states, _ = encoder(embed(tokens))
        candidates = torch.cat((lexicon[tokens].flatten(), targets.flatten()))
        if flawed:
            # flaw in the next line: words_unique_on_cpu
            possible = torch.unique(candidates.cpu()).to(tokens.device)
        else:
            possible = torch.unique(candidates)
        scores = states.flatten(0, 1) @ out.index_select(0, possible).T
        places = torch.searchsorted(possible, targets.flatten())
        return F.cross_entropy(scores, places)

    return Step(training(loss, optimizer, sizes, is_mixed=False))


class CachedLayer(nn.Module):
    """A layer of a decoder whose keys and values are kept in 8 bits."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)


def rounded(x: Tensor, scale: float) -> Tensor:
    """Values in 8 bits."""
    return (x / scale).round().clamp(-127, 127).to(torch.int8)


def cache_restored_each_token(flawed: bool, sizes: Sizes) -> Step:
    batch, width, heads, depth, length, turns = sizes.of(
        (16, 1024, 8, 6, 4096, 6), (2, 8, 2, 2, 8, 3)
    )
    scale = 0.02
    layers = seeded(lambda: nn.ModuleList(CachedLayer(width, heads) for _ in range(depth)), sizes)
    layers = layers.eval().bfloat16()
    first = seeded(lambda: torch.randn(batch, 1, width), sizes).bfloat16()
    shape = (depth, 2, batch, heads, length, width // heads)
    codes = seeded(lambda: torch.randint(-100, 100, shape, dtype=torch.int8), sizes)
    kept = [each.bfloat16() * scale for each in codes]

    @torch.inference_mode()
    def step() -> Tensor:
        x = first
        for at in range(length - turns, length):
            for number, layer in enumerate(layers):
                qkv = layer.qkv(layer.norm(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
                new = rounded(qkv[1:], scale)
                if flawed:
                    codes[number][:, :, :, at : at + 1] = new
                    own = codes[number][:, :, :, : at + 1]
                    keys, values = own.bfloat16() * scale  # flaw: cache_restored_each_token
                else:
                    kept[number][:, :, :, at : at + 1] = new.bfloat16() * scale
                    keys, values = kept[number][:, :, :, : at + 1]
                y = F.scaled_dot_product_attention(qkv[0], keys, values)
                x = x + layer.out(y.transpose(1, 2).flatten(2))
        return x.float().square().mean()

    return Step(step)


class DepthErrors:
    """Errors of depths, of a batch and of all batches."""

    def __init__(self, device: str, twice: bool) -> None:
        self.twice, self.device = twice, device
        self.total = torch.zeros(5, device=device)

    def update(self, found: Tensor, wanted: Tensor) -> None:
        is_known = (wanted > 0.1).float()  # flaw: errors_measured_twice
        ratio = torch.maximum(found / wanted, wanted / found)  # flaw: errors_measured_twice
        relative = ((found - wanted).abs() / wanted * is_known).sum()  # flaw: errors_measured_twice
        # flaw in the next line: errors_measured_twice
        logs = ((found.log() - wanted.log()).square() * is_known).sum()
        # flaw in the next line: errors_measured_twice
        near = [((ratio < 1.25**power).float() * is_known).sum() for power in (1, 2)]
        # flaw in the next line: errors_measured_twice
        self.total = self.total + torch.stack((relative, logs, *near, is_known.sum()))

    def __call__(self, found: Tensor, wanted: Tensor) -> Tensor:
        """The errors of this batch, which are added to those of all."""
        if self.twice:
            self.update(found, wanted)  # flaw: errors_measured_twice
            kept, self.total = self.total, torch.zeros(5, device=self.device)
            self.update(found, wanted)  # flaw: errors_measured_twice
            own, self.total = self.total, kept
        else:
            kept, self.total = self.total, torch.zeros(5, device=self.device)
            self.update(found, wanted)
            own, self.total = self.total, kept + self.total
        return own[:-1] / own[-1]


def errors_measured_twice(flawed: bool, sizes: Sizes) -> Step:
    batch, height, width, channels = sizes.of((16, 512, 1024, 64), (2, 16, 16, 4))
    model = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(3, channels, 4, stride=4), nn.GELU(), nn.Conv2d(channels, channels, 3, 2, 1),
            nn.GELU(), nn.Conv2d(channels, 64, 1), nn.PixelShuffle(8),
        ),
        sizes,
    )  # fmt: skip
    images, depths = seeded(
        lambda: (
            torch.randn(batch, 3, height, width),
            0.05 + 5 * torch.rand(batch, 1, height, width),
        ),
        sizes,
    )
    errors = DepthErrors(sizes.device, flawed)

    def loss() -> Tensor:
        found = F.softplus(model(images).float()) + 0.01
        errors(found.detach(), depths)  # flaw: errors_measured_twice
        return F.smooth_l1_loss(found, depths)

    return Step(training(loss, fused_adamw(model), sizes))
