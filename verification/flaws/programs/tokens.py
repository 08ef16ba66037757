"""Flaws of models of text: scans, short convolutions, sampling, experts, tags and labels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "expert_deltas_written",
    "labels_by_bilinear",
    "penalty_token_by_token",
    "selective_scan_in_loop",
    "short_convolution_depthwise",
    "viterbi_per_sentence",
]


def scan_by_steps(decay: Tensor, inputs: Tensor, read: Tensor) -> Tensor:
    """h[t] = exp(decay[t]) h[t - 1] + inputs[t], read out in each moment."""
    state, rows = torch.zeros_like(inputs[:, 0]), []
    for at in range(inputs.shape[1]):
        state = decay[:, at].exp() * state + inputs[:, at]  # flaw: selective_scan_in_loop
        rows.append((state * read[:, at, None]).sum(-1))  # flaw: selective_scan_in_loop
    return torch.stack(rows, 1)


def scan_by_sums(decay: Tensor, inputs: Tensor, read: Tensor) -> Tensor:
    """The same from two cumulative sums; decays over the whole text are far from zero."""
    total = decay.cumsum(1)
    states = total.exp() * ((-total).exp() * inputs).cumsum(1)
    return (states * read[:, :, None]).sum(-1)


class StateSpace(nn.Module):
    """A Mamba block."""

    def __init__(self, width: int, states: int, in_loop: bool) -> None:
        super().__init__()
        self.scan = scan_by_steps if in_loop else scan_by_sums
        self.norm = nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)
        self.selects = nn.Linear(2 * width, 2 * states)
        self.delta = nn.Linear(2 * width, 2 * width)
        self.rates = nn.Parameter(torch.linspace(0.1, 1, states).expand(2 * width, -1).clone())

    def forward(self, x: Tensor) -> Tensor:
        inner, gate = self.into(self.norm(x)).chunk(2, -1)
        inner = F.silu(inner)
        write, read = self.selects(inner).float().chunk(2, -1)
        delta = F.softplus(self.delta(inner).float() - 4)[..., None]
        inputs = delta * write[:, :, None] * inner.float()[..., None]
        y = self.scan(-delta * self.rates, inputs, read)
        return x + self.out(y * F.silu(gate))


def selective_scan_in_loop(flawed: bool, sizes: Sizes) -> Step:
    width, states, depth, batch, length = sizes.of((512, 16, 4, 4, 128), (8, 2, 2, 2, 5))
    words = sizes.of(16384, 12)

    def make() -> nn.Sequential:
        blocks = (StateSpace(width, states, flawed) for _ in range(depth))
        return nn.Sequential(nn.Embedding(words, width), *blocks, nn.Linear(width, words))

    model = seeded(make, sizes)
    text = seeded(lambda: torch.randint(0, words, (batch, length + 1)), sizes)

    def loss() -> Tensor:
        return F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    return Step(training(loss, fused_adamw(model), sizes))


class ShortConvolution(nn.Conv1d):
    """A causal convolution of each channel over four tokens, of (batch, tokens, channels)."""

    by_shifts = False

    def forward(self, x: Tensor) -> Tensor:
        (kernel,) = self.kernel_size
        if not self.by_shifts:
            padded = F.pad(x.transpose(1, 2), (kernel - 1, 0))
            return super().forward(padded).transpose(1, 2)  # flaw: short_convolution_depthwise
        taps = self.weight.squeeze(1).to(x.dtype).unbind(1)
        padded = F.pad(x, (0, 0, kernel - 1, 0))
        y = x * taps[-1]
        for at, tap in enumerate(taps[:-1]):
            y = torch.addcmul(y, padded[:, at : at + x.shape[1]], tap)
        return y


class HybridBlock(nn.Module):
    """Causal attention whose queries, keys and values pass a short convolution, and an MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.short = ShortConvolution(3 * width, 3 * width, 4, groups=3 * width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        mixed = F.silu(self.short(self.qkv(self.norm_1(x))))
        q, k, v = mixed.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def short_convolution_depthwise(flawed: bool, sizes: Sizes) -> Step:
    width, heads, depth, batch, length = sizes.of((1024, 16, 4, 4, 2048), (8, 2, 2, 2, 6))
    words = sizes.of(8192, 12)

    def make() -> nn.Sequential:
        blocks = (HybridBlock(width, heads) for _ in range(depth))
        return nn.Sequential(nn.Embedding(words, width), *blocks, nn.Linear(width, words))

    model = seeded(make, sizes)
    for module in model.modules():
        if isinstance(module, ShortConvolution):
            module.by_shifts = not flawed
    text = seeded(lambda: torch.randint(0, words, (batch, length + 1)), sizes)

    def loss() -> Tensor:
        return F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    return Step(training(loss, fused_adamw(model), sizes))


class CachedBlock(nn.Module):
    """A decoder's block for one token, with the keys and values of those before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, cache: Tensor, at: int) -> Tensor:
        qkv = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = (each.transpose(1, 2) for each in qkv.unbind(2))
        cache[0, :, :, at : at + 1], cache[1, :, :, at : at + 1] = k, v
        seen = F.scaled_dot_product_attention(q, *cache[:, :, :, : at + 1])
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def penalized_in_loop(logits: Tensor, history: list[list[int]], penalty: float) -> Tensor:
    """Scores of words that a text has already, made smaller word by word."""
    for row, words in enumerate(history):
        for word in set(words):
            if logits[row, word] < 0:  # flaw: penalty_token_by_token
                logits[row, word] *= penalty  # flaw: penalty_token_by_token
            else:
                logits[row, word] /= penalty  # flaw: penalty_token_by_token
    return logits


def penalized(logits: Tensor, history: Tensor, penalty: float) -> Tensor:
    """The same at once."""
    scores = logits.gather(1, history)
    scores = torch.where(scores < 0, scores * penalty, scores / penalty)
    return logits.scatter(1, history, scores)


def penalty_token_by_token(flawed: bool, sizes: Sizes) -> Step:
    width, heads, depth, batch, words = sizes.of((1024, 16, 16, 2, 65536), (8, 2, 2, 2, 12))
    known, room = sizes.of((80, 96), (4, 8))
    blocks = seeded(lambda: nn.ModuleList(CachedBlock(width, heads) for _ in range(depth)), sizes)
    blocks = blocks.eval().bfloat16()
    table = seeded(lambda: torch.randn(words, width) * 0.05, sizes).bfloat16()
    shape = (depth, 2, batch, heads, room, width // heads)
    cache = seeded(lambda: torch.randn(shape), sizes).bfloat16()
    history = seeded(lambda: torch.randint(0, words, (batch, known)), sizes)
    lists = history.tolist()

    @torch.inference_mode()
    def step() -> Tensor:
        x = F.embedding(history[:, -1:], table)
        for block, own in zip(blocks, cache, strict=True):
            x = block(x, own, known)
        logits = (x[:, -1] @ table.T).float()
        if flawed:
            logits = penalized_in_loop(logits, lists, 1.3)  # flaw: penalty_token_by_token
        else:
            logits = penalized(logits, history, 1.3)
        return logits.logsumexp(1).mean()

    return Step(step)


class AdaptedExperts(nn.Module):
    """Frozen weights of all experts (experts, inputs, outputs), and adapters of low rank."""

    def __init__(self, experts: int, inputs: int, outputs: int, rank: int, folds: bool) -> None:
        super().__init__()
        self.folds, self.scaling = folds, 2.0
        base = torch.empty(experts, inputs, outputs, dtype=torch.bfloat16)
        self.base = nn.Parameter(base.normal_(std=inputs**-0.5), requires_grad=False)
        self.left = nn.Parameter(torch.randn(experts, inputs, rank) * 0.02)
        self.right = nn.Parameter(torch.randn(experts, rank, outputs) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.left.to(x.dtype), self.right.to(x.dtype)
        if self.folds:
            weight = torch.baddbmm(self.base, left, right, alpha=self.scaling)
        else:
            delta = self.scaling * (left @ right)  # flaw: expert_deltas_written
            weight = self.base + delta  # flaw: expert_deltas_written
        return torch.bmm(x, weight)


class Experts(nn.Module):
    """A layer of experts, each of which has the same number of tokens."""

    def __init__(self, experts: int, width: int, inner: int, rank: int, folds: bool) -> None:
        super().__init__()
        self.up = AdaptedExperts(experts, width, inner, rank, folds)
        self.down = AdaptedExperts(experts, inner, width, rank, folds)

    def forward(self, x: Tensor) -> Tensor:
        y = F.layer_norm(x, x.shape[-1:])
        return x + self.down(F.silu(self.up(y)))


def expert_deltas_written(flawed: bool, sizes: Sizes) -> Step:
    experts, width, inner, rank = sizes.of((64, 2048, 768, 16), (3, 8, 6, 2))
    depth, tokens = sizes.of((4, 128), (2, 5))
    model = seeded(
        lambda: nn.ModuleList(
            Experts(experts, width, inner, rank, not flawed) for _ in range(depth)
        ),
        sizes,
    )
    total = experts * tokens
    x, truth = seeded(lambda: torch.randn(2, total, width), sizes).bfloat16()
    orders = seeded(lambda: torch.stack([torch.randperm(total) for _ in range(depth)]), sizes)
    weights = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)

    def loss() -> Tensor:
        y = x
        for layer, order in zip(model, orders, strict=True):
            y = layer(y[order].view(experts, tokens, width)).flatten(0, 1)
        return F.mse_loss(y.float(), truth.float())

    return Step(training(loss, optimizer, sizes, is_mixed=False))


class Tagger(nn.Module):
    """An LSTM in both directions, scores of tags, and those of their transitions."""

    def __init__(self, words: int, width: int, tags: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, tags)
        self.moves = nn.Parameter(torch.randn(tags, tags))

    def forward(self, text: Tensor) -> Tensor:
        return self.head(self.lstm(self.words(text))[0]).float()


def best_path(scores: Tensor, moves: Tensor) -> tuple[Tensor, list[int]]:
    """The best tags of one sentence (words, tags)."""
    total, history = scores[0], []
    for now in scores[1:]:
        best = (total[:, None] + moves).max(0)  # flaw: viterbi_per_sentence
        history.append(best.indices)
        total = best.values + now  # flaw: viterbi_per_sentence
    tag = int(total.argmax())  # flaw: viterbi_per_sentence
    path = [tag]
    for before in reversed(history):
        tag = int(before[tag])  # flaw: viterbi_per_sentence
        path.append(tag)
    return total.max(), path[::-1]


def best_paths(scores: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
    """The best tags of all sentences (sentences, words, tags)."""
    total, history = scores[:, 0], []
    for now in scores[:, 1:].unbind(1):
        best = (total[:, :, None] + moves).max(1)
        history.append(best.indices)
        total = best.values + now
    tags = total.argmax(1, keepdim=True)
    path = [tags]
    for before in reversed(history):
        tags = before.gather(1, tags)
        path.append(tags)
    return total.amax(1), torch.cat(path[::-1], 1)


def viterbi_per_sentence(flawed: bool, sizes: Sizes) -> Step:
    words, width, tags, batch, length = sizes.of((8192, 512, 25, 8, 40), (12, 8, 3, 3, 4))
    model = seeded(lambda: Tagger(words, width, tags), sizes).eval()
    text = seeded(lambda: torch.randint(0, words, (batch, length)), sizes)

    @torch.inference_mode()
    def step() -> Tensor:
        scores = model(text)
        if flawed:
            pairs = [best_path(each, model.moves) for each in scores]  # flaw: viterbi_per_sentence
            totals = torch.stack([pair[0] for pair in pairs])
            paths = torch.tensor([pair[1] for pair in pairs])
        else:
            totals, found = best_paths(scores, model.moves)
            paths = found.cpu()
        return totals.mean().cpu() + paths.float().mean()

    return Step(step)


class EinsumBilinear(nn.Bilinear):
    """All outputs of a bilinear layer from one product."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.einsum("ni,oij,nj->no", left, self.weight, right) + self.bias


class Parser(nn.Module):
    """An encoder, and the labels of arcs between words and their heads."""

    def __init__(self, words: int, width: int, depth: int, labels: int, by_einsum: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.of_head, self.of_word = nn.Linear(width, width // 2), nn.Linear(width, width // 2)
        kind = EinsumBilinear if by_einsum else nn.Bilinear
        self.labels = kind(width // 2, width // 2, labels)

    def forward(self, text: Tensor, heads: Tensor) -> Tensor:
        x = self.encoder(self.words(text))
        chosen = x.gather(1, heads[..., None].expand_as(x))
        left = F.relu(self.of_head(chosen)).flatten(0, 1).float()
        right = F.relu(self.of_word(x)).flatten(0, 1).float()
        with torch.autocast(x.device.type, enabled=False):
            return self.labels(left, right)  # flaw: labels_by_bilinear


def labels_by_bilinear(flawed: bool, sizes: Sizes) -> Step:
    words, width, depth, labels = sizes.of((16384, 512, 4, 64), (12, 16, 1, 3))
    batch, length = sizes.of((64, 64), (2, 4))
    model = seeded(lambda: Parser(words, width, depth, labels, not flawed), sizes)
    text = seeded(lambda: torch.randint(0, words, (batch, length)), sizes)
    heads = seeded(lambda: torch.randint(0, length, (batch, length)), sizes)
    truth = seeded(lambda: torch.randint(0, labels, (batch * length,)), sizes)
    run = training(lambda: F.cross_entropy(model(text, heads), truth), fused_adamw(model), sizes)
    return Step(run)
