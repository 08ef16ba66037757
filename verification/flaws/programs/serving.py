"""Flaws of models that answer token by token, or that are called again and again."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, autocast, seeded

__all__ = [
    "cross_keys_each_token",
    "neighbours_from_cpu_zeros",
    "ngrams_in_python",
    "prompt_per_beam",
    "weights_cast_each_call",
]


class Attention(nn.Module):
    """Attention to itself with a cache, or to the states of an encoder."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of states."""
        # flaw in the next line: cross_keys_each_token, weights_cast_each_call
        k, v = self.key_value(x).chunk(2, -1)
        return self.split(k), self.split(v)

    def forward(self, x: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
        q = self.split(self.query(x))  # flaw: weights_cast_each_call
        y = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        return self.out(y.transpose(1, 2).flatten(2))  # flaw: weights_cast_each_call


class Layer(nn.Module):
    """A layer of a decoder; with attention to an encoder if it has one."""

    def __init__(self, width: int, heads: int, has_encoder: bool) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.itself = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.other = Attention(width, heads) if has_encoder else None
        self.past: tuple[Tensor, Tensor] | None = None
        self.encoded: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor, states: Tensor | None) -> Tensor:
        h = self.norm_1(x)
        k, v = self.itself.keys(h)
        if self.past is not None:
            k, v = torch.cat((self.past[0], k), 2), torch.cat((self.past[1], v), 2)
        self.past = k, v
        x = x + self.itself(h, k, v, is_causal=h.shape[1] > 1)
        if self.other is not None:
            if self.encoded is None:
                assert states is not None
                k, v = self.other.keys(states)  # flaw: cross_keys_each_token
            else:
                k, v = self.encoded
            x = x + self.other(x, k, v)
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Generator(nn.Module):
    """A decoder that remembers what it has read."""

    def __init__(
        self, words: int, width: int, layers: int, heads: int, has_encoder: bool = False
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads, has_encoder) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forget(self) -> None:
        """Begin a text."""
        for layer in self.layers:
            layer.past = layer.encoded = None

    def states(self, tokens: Tensor, encoded: Tensor | None = None) -> Tensor:
        """The states of new tokens."""
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x, encoded)
        return self.norm(x)

    def forward(self, tokens: Tensor, encoded: Tensor | None = None) -> Tensor:
        """The logits of the token after these."""
        return F.linear(self.states(tokens, encoded)[:, -1], self.words.weight)


def generator_of(sizes: Sizes, layers: int, words: int, has_encoder: bool = False) -> Generator:
    """A generator in bfloat16."""
    width, heads = sizes.of((768, 12), (16, 2))
    layers, words = sizes.of((layers, words), (2, 40))
    model = seeded(lambda: Generator(words, width, layers, heads, has_encoder), sizes)
    return model.bfloat16().eval().requires_grad_(False)


def texts_of(sizes: Sizes, batch: int, length: int, words: int) -> Tensor:
    """Random texts."""
    batch, length, words = sizes.of((batch, length, words), (2, 9, 40))
    return seeded(lambda: torch.randint(0, words, (batch, length)), sizes)


def prompt_per_beam(flawed: bool, sizes: Sizes) -> Step:
    model = generator_of(sizes, 12, 32768)
    prompts, beams = texts_of(sizes, 6, 1024, 32768), sizes.of(4, 2)

    def first_of_all() -> tuple[Tensor, Tensor]:
        """Read each prompt once for each of its beams."""
        repeated = prompts.repeat_interleave(beams, 0)
        scores = model(repeated).float().log_softmax(-1)[::beams]  # flaw: prompt_per_beam
        return scores.topk(beams)

    def first_of_each() -> tuple[Tensor, Tensor]:
        """Read each prompt once, and repeat what is remembered."""
        scores = model(prompts).float().log_softmax(-1)
        for layer in model.layers:
            k, v = layer.past
            layer.past = k.repeat_interleave(beams, 0), v.repeat_interleave(beams, 0)
        return scores.topk(beams)

    @torch.inference_mode()
    def step() -> Tensor:
        model.forget()
        scores, tokens = first_of_all() if flawed else first_of_each()
        scores, tokens = scores.flatten(), tokens.flatten()
        for _ in range(sizes.of(3, 2)):
            best, tokens = model(tokens[:, None]).float().log_softmax(-1).max(-1)
            scores = scores + best
        return scores.mean()

    return Step(step)


def cross_keys_each_token(flawed: bool, sizes: Sizes) -> Step:
    model = generator_of(sizes, 6, 8192, has_encoder=True)
    batch, frames, width, count = sizes.of((32, 1500, 768, 8), (2, 10, 16, 3))
    speech = seeded(lambda: torch.randn(batch, frames, width), sizes).bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        model.forget()
        if not flawed:
            for layer in model.layers:
                layer.encoded = layer.other.keys(speech)
        token = torch.zeros(batch, 1, dtype=torch.long, device=speech.device)
        total = torch.zeros((), device=speech.device)
        for _ in range(count):
            best, token = model(token, speech).max(-1, keepdim=True)
            total += best.float().mean()
        return total

    return Step(step)


def banned_in_python(known: Tensor, size: int) -> list[list[int]]:
    """For each text, the tokens that would repeat an n-gram of it."""
    banned = []
    for text in known:
        tokens = text.tolist()  # flaw: ngrams_in_python
        followers: dict[tuple[int, ...], list[int]] = {}
        for gram in zip(*(tokens[at:] for at in range(size)), strict=False):
            followers.setdefault(gram[:-1], []).append(gram[-1])  # flaw: ngrams_in_python
        banned.append(followers.get(tuple(tokens[len(tokens) + 1 - size :]), []))
    return banned


def ban_one_by_one(scores: Tensor, known: Tensor, size: int) -> Tensor:
    scores = scores.clone()
    for at, tokens in enumerate(banned_in_python(known, size)):  # flaw: ngrams_in_python
        scores[at, tokens] = -torch.inf  # flaw: ngrams_in_python
    return scores


def ban_all(scores: Tensor, known: Tensor, size: int) -> Tensor:
    grams = known.unfold(1, size, 1)
    repeats = (grams[:, :, :-1] == known[:, None, known.shape[1] + 1 - size :]).all(-1)
    last = torch.where(repeats, grams[:, :, -1], scores.shape[1])
    banned = F.pad(torch.zeros_like(scores, dtype=torch.bool), (0, 1)).scatter(1, last, True)
    return scores.masked_fill(banned[:, :-1], -torch.inf)


def ngrams_in_python(flawed: bool, sizes: Sizes) -> Step:
    model = generator_of(sizes, 8, 32768)
    texts = texts_of(sizes, 4, 512, 32768)
    ban = ban_one_by_one if flawed else ban_all

    @torch.inference_mode()
    def step() -> Tensor:
        model.forget()
        known, new = texts, texts
        total = torch.zeros((), device=texts.device)
        for _ in range(sizes.of(6, 3)):
            best, token = ban(model(new).float(), known, 3).max(-1, keepdim=True)
            known, new = torch.cat((known, token), 1), token
            total += best.mean()
        return total

    return Step(step)


class FlowBlock(nn.Module):
    """A block of a DiT, whose norms the time scales."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.time = nn.Linear(width, 4 * width)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        # flaw in the next line: weights_cast_each_call
        scale_1, gate_1, scale_2, gate_2 = self.time(time)[:, None].chunk(4, -1)
        h = self.norm(x) * (1 + scale_1)
        x = x + gate_1 * self.attention(h, *self.attention.keys(h))
        # flaw in the next line: weights_cast_each_call
        return x + gate_2 * self.down(F.gelu(self.up(self.norm(x) * (1 + scale_2))))


class Flow(nn.Module):
    """The velocity of a flow from noise to spectra."""

    def __init__(self, mels: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(mels, width), nn.Linear(width, mels)
        self.blocks = nn.ModuleList(FlowBlock(width, heads) for _ in range(layers))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        x = self.into(x)
        for block in self.blocks:
            x = block(x, time)  # flaw: weights_cast_each_call
        return self.out(x)


def weights_cast_each_call(flawed: bool, sizes: Sizes) -> Step:
    mels, width, layers, heads = sizes.of((80, 1024, 12, 16), (4, 16, 2, 2))
    batch, frames, steps = sizes.of((2, 400, 4), (2, 6, 2))
    flow = seeded(lambda: Flow(mels, width, layers, heads), sizes).eval().requires_grad_(False)
    noise, time = seeded(
        lambda: (torch.randn(batch, frames, mels), torch.randn(batch, width)), sizes
    )
    if not flawed:
        for module in flow.modules():
            if isinstance(module, nn.Linear):
                module.bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        x = noise
        with autocast(sizes):
            for at in range(steps):
                x = x + flow(x, time + at / steps) / steps  # flaw: weights_cast_each_call
        return x.float().abs().mean()

    return Step(step)


class Datastore:
    """Keys of tokens that were seen, and the tokens."""

    def __init__(self, keys: Tensor, tokens: Tensor, words: int, is_flawed: bool) -> None:
        self.keys, self.tokens, self.words, self.is_flawed = keys, tokens, words, is_flawed

    def probabilities(self, states: Tensor, count: int) -> Tensor:
        """The tokens of the nearest keys, each by its nearness."""
        similar, places = (states @ self.keys.mT).topk(count)
        weights = similar.float().softmax(-1)
        if self.is_flawed:
            # flaw in the next line: neighbours_from_cpu_zeros
            found = torch.zeros(len(states), self.words).to(states.device)
        else:
            found = torch.zeros(len(states), self.words, device=states.device)
        return found.scatter_add_(1, self.tokens[places], weights)


def neighbours_from_cpu_zeros(flawed: bool, sizes: Sizes) -> Step:
    model = generator_of(sizes, 12, 42024)
    words, width = model.words.weight.shape
    batch, entries, count = sizes.of((16, 65536, 6), (2, 20, 3))
    keys, tokens = seeded(
        lambda: (torch.randn(entries, width), torch.randint(0, words, (entries,))), sizes
    )
    store = Datastore(keys.bfloat16(), tokens, words, flawed)

    @torch.inference_mode()
    def step() -> Tensor:
        model.forget()
        token = torch.zeros(batch, 1, dtype=torch.long, device=keys.device)
        total = torch.zeros((), device=keys.device)
        for _ in range(count):
            states = model.states(token)[:, -1]
            known = store.probabilities(states, min(8, entries))
            scores = 0.5 * F.linear(states, model.words.weight).float().softmax(-1) + 0.5 * known
            best, token = scores.max(-1, keepdim=True)
            total += best.mean()
        return total

    return Step(step)
