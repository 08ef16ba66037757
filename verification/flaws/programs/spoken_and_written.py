"""Models of language and of speech."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, autocast, fused_adamw, seeded, training

__all__ = [
    "canary_small_batches",
    "conformer_unsorted_batches",
    "decoder_without_key_value_cache",
    "pythia_odd_vocabulary",
    "seq2seq_loss_by_step",
]


def turns_of(places: int, width: int) -> Tensor:
    """Cosines and sines [2, place, width / 2] of the angles of places."""
    half = width // 2
    speeds = 10000.0 ** (-torch.arange(half) / half)
    angles = torch.arange(places)[:, None] * speeds
    return torch.stack([angles.cos(), angles.sin()])


def rotated(x: Tensor, turns: Tensor) -> Tensor:
    """Queries or keys [batch, head, place, width], turned by the angles of their places."""
    cosine, sine = turns
    left, right = x.chunk(2, -1)
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1)


class Memory:
    """The keys and values of a layer, with room for all tokens that will come."""

    def __init__(self, batch: int, heads: int, room: int, width: int, like: Tensor) -> None:
        self.keys = like.new_zeros(batch, heads, room, width)
        self.values = torch.zeros_like(self.keys)
        self.used = 0

    def extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        begin, self.used = self.used, self.used + keys.shape[2]
        self.keys[:, :, begin : self.used] = keys
        self.values[:, :, begin : self.used] = values
        return self.keys[:, :, : self.used], self.values[:, :, : self.used]


class ParallelBlock(nn.Module):
    """Attention and MLP side by side, as in Pythia."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.norm_2 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, turns: Tensor, memory: Memory | None = None) -> Tensor:
        return x + self.attention(self.norm_1(x), turns, memory) + self.mlp(self.norm_2(x))

    def attention(self, x: Tensor, turns: Tensor, memory: Memory | None) -> Tensor:
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        q, k = rotated(q, turns), rotated(k, turns)
        if memory is not None:
            k, v = memory.extended(k, v)
        # flaw in the next line: decoder_without_key_value_cache
        y = F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] == k.shape[2])
        return self.out(y.transpose(1, 2).flatten(2))


class Pythia(nn.Module):
    """A decoder with rotary positions."""

    turns: Tensor

    def __init__(self, vocabulary: int, layers: int, width: int, heads: int, room: int) -> None:
        super().__init__()
        self.register_buffer("turns", turns_of(room, width // heads))
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(ParallelBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)  # flaw: pythia_odd_vocabulary

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.hidden(tokens))  # flaw: pythia_odd_vocabulary

    def hidden(self, tokens: Tensor, memories: list[Memory] | None = None) -> Tensor:
        x = self.tokens(tokens)
        first = 0 if memories is None else memories[0].used
        turns = self.turns[:, first : first + tokens.shape[1]].to(torch.bfloat16)
        for place, block in enumerate(self.blocks):
            # flaw in the next line: decoder_without_key_value_cache
            x = block(x, turns, None if memories is None else memories[place])
        return self.norm(x)


def pythia_odd_vocabulary(flawed: bool, sizes: Sizes) -> Step:
    """A language model with some more tokens is tuned on conversations."""
    layers, width, heads, batch = sizes.of((12, 1024, 16, 8), (2, 32, 2, 2))
    tokens, length = sizes.of((50281, 1021), (131, 29))
    text = seeded(lambda: torch.randint(tokens, (batch, length + 1)), sizes)
    given, wanted = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    vocabulary = tokens  # flaw: pythia_odd_vocabulary
    if not flawed:
        vocabulary += -tokens % 16
        given = F.pad(given, (0, -length % 16))
        wanted = F.pad(wanted, (0, -length % 16), value=-100)
    model = seeded(lambda: Pythia(vocabulary, layers, width, heads, given.shape[1]), sizes)
    optimizer = fused_adamw(model)

    def loss_of() -> Tensor:
        logits = model(given)  # flaw: pythia_odd_vocabulary
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())

    return Step(training(loss_of, optimizer, sizes))


def decoder_without_key_value_cache(flawed: bool, sizes: Sizes) -> Step:
    """Some tokens are generated after a prompt."""
    layers, width, heads, batch = sizes.of((12, 768, 12, 16), (2, 32, 2, 2))
    words, prompt_length, count = sizes.of((20000, 384, 24), (64, 12, 4))
    room = prompt_length + count
    model = seeded(lambda: Pythia(words, layers, width, heads, room), sizes)
    model = model.to(torch.bfloat16).eval()
    prompt = seeded(lambda: torch.randint(words, (batch, prompt_length)), sizes)
    like = torch.empty(0, device=sizes.device, dtype=torch.bfloat16)

    @torch.inference_mode()
    def generate() -> Tensor:
        kept = [Memory(batch, heads, room, width // heads, like) for _ in range(layers)]
        tokens = given = prompt
        chances = []
        for _ in range(count):
            # flaw in the next line: decoder_without_key_value_cache
            x = model.hidden(given, None if flawed else kept)
            best, token = F.log_softmax(model.head(x[:, -1]).float(), -1).max(-1)
            chances.append(best)
            tokens = torch.cat([tokens, token[:, None]], 1)
            given = tokens if flawed else token[:, None]  # flaw: decoder_without_key_value_cache
        return -torch.stack(chances).mean()

    return Step(generate)


class Translator(nn.Module):
    """Recurrent encoder and decoder with attention; the decoder is given the true sentence."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.source = nn.Embedding(words, width)
        self.target = nn.Embedding(words, width)
        self.encoder = nn.LSTM(width, width, 2, batch_first=True)
        self.decoder = nn.LSTM(width, width, 2, batch_first=True)
        self.mix = nn.Linear(2 * width, width)
        self.out = nn.Linear(width, words)

    def forward(self, sentence: Tensor, translation: Tensor) -> Tensor:
        context, state = self.encoder(self.source(sentence))
        x, _ = self.decoder(self.target(translation), state)
        seen = F.scaled_dot_product_attention(x, context, context)
        x = torch.tanh(self.mix(torch.cat([seen, x], -1)))
        return F.log_softmax(self.out(x), -1)


def seq2seq_loss_by_step(flawed: bool, sizes: Sizes) -> Step:
    """A translator learns by the negative log likelihood of each word."""
    words, width, batch, length = sizes.of((10000, 512, 64, 50), (60, 16, 2, 6))
    model = seeded(lambda: Translator(words, width), sizes)
    sentence = seeded(lambda: torch.randint(words, (batch, length)), sizes)
    translation = seeded(lambda: torch.randint(words, (batch, length + 1)), sizes)
    optimizer = fused_adamw(model)

    def loss_of() -> Tensor:
        predicted = model(sentence, translation[:, :-1])
        wanted = translation[:, 1:]
        if not flawed:
            return F.nll_loss(predicted.flatten(0, 1), wanted.flatten())
        loss = torch.zeros((), device=sizes.device)
        for step in range(length):  # flaw: seq2seq_loss_by_step
            now = predicted[:, step]  # flaw: seq2seq_loss_by_step
            loss = loss + F.nll_loss(now, wanted[:, step])  # flaw: seq2seq_loss_by_step
        return loss / length

    return Step(training(loss_of, optimizer, sizes))


class ConformerBlock(nn.Module):
    """Half an MLP, attention, a convolution over time, and half an MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.before = self.mlp(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.gate = nn.Linear(width, 2 * width)
        self.depthwise = nn.Conv1d(width, width, 9, padding=4, groups=width)
        self.point = nn.Linear(width, width)
        self.after = self.mlp(width)

    @staticmethod
    def mlp(width: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, turns: Tensor, is_speech: Tensor | None) -> Tensor:
        x = x + 0.5 * self.before(self.norms[0](x))
        x = x + self.attention(self.norms[1](x), turns, is_speech)
        x = x + self.convolution(self.norms[2](x), is_speech)
        x = x + 0.5 * self.after(self.norms[3](x))
        return self.norms[4](x)

    def attention(self, x: Tensor, turns: Tensor, is_speech: Tensor | None) -> Tensor:
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mask = None if is_speech is None else is_speech[:, None, None]
        q, k = rotated(q, turns), rotated(k, turns)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).flatten(2))

    def convolution(self, x: Tensor, is_speech: Tensor | None) -> Tensor:
        x = F.glu(self.gate(x), -1)
        if is_speech is not None:
            x = x * is_speech[..., None]
        x = self.depthwise(x.transpose(1, 2)).transpose(1, 2)
        return self.point(F.silu(x))


class Conformer(nn.Module):
    """An encoder of spectrograms, which joins eight frames to one."""

    turns: Tensor

    def __init__(self, bands: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.register_buffer("turns", turns_of(512, width // heads))
        self.enter = nn.Linear(8 * bands, width)
        self.blocks = nn.ModuleList(ConformerBlock(width, heads) for _ in range(layers))

    def forward(self, spectrograms: Tensor, is_speech: Tensor | None = None) -> Tensor:
        """Encode spectrograms [batch, frame, band]; the mask is of the joined frames."""
        x = self.enter(spectrograms.unflatten(1, (-1, 8)).flatten(2))
        turns = self.turns[:, : x.shape[1]].to(torch.bfloat16)
        for block in self.blocks:
            x = block(x, turns, is_speech)  # flaw: conformer_unsorted_batches, canary_small_batches
        return x


class Recogniser(nn.Module):
    """A conformer whose frames are labelled."""

    def __init__(self, bands: int, width: int, heads: int, layers: int, labels: int) -> None:
        super().__init__()
        self.encoder = Conformer(bands, width, heads, layers)
        self.head = nn.Linear(width, labels)

    def forward(self, spectrograms: Tensor, is_speech: Tensor) -> Tensor:
        return F.log_softmax(self.head(self.encoder(spectrograms, is_speech)).float(), -1)


def accumulated(
    parts: list[Callable[[], Tensor]], optimizer: torch.optim.Optimizer, sizes: Sizes
) -> Callable[[], Tensor]:
    """A step whose gradients are those of the sum of some losses."""

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=sizes.device)
        for part in parts:
            with autocast(sizes):
                loss = part()
            loss.backward()  # flaw: canary_small_batches
            total += loss.detach()
        optimizer.step()
        return total

    return step


def conformer_unsorted_batches(flawed: bool, sizes: Sizes) -> Step:
    """A recogniser of speech learns from utterances of very unlike lengths."""
    width, heads, layers, labels, batch, batches = sizes.of(
        (512, 8, 8, 256, 32, 4), (16, 2, 1, 20, 2, 2)
    )
    model = seeded(lambda: Recogniser(80, width, heads, layers, labels), sizes)
    optimizer = fused_adamw(model)
    shortest, longest = sizes.of((25, 250), (12, 30))
    chance = torch.Generator().manual_seed(11)
    lengths = torch.randint(shortest, longest, (batch * batches,), generator=chance)
    speech = [torch.randn(8 * int(each), 80, generator=chance) for each in lengths]
    spoken = lengths // 5
    texts = [torch.randint(1, labels, (int(each),), generator=chance) for each in spoken]
    order = (
        torch.arange(len(lengths)) if flawed else lengths.argsort()
    )  # flaw: conformer_unsorted_batches

    def part_of(rows: Tensor) -> Callable[[], Tensor]:
        chosen = rows.tolist()
        # flaw in the next line: conformer_unsorted_batches
        padded = nn.utils.rnn.pad_sequence([speech[row] for row in chosen], batch_first=True)
        sounds = padded.to(sizes.device)
        frames = sounds.shape[1] // 8
        is_speech = (torch.arange(frames) < lengths[rows, None]).to(sizes.device)
        text = torch.cat([texts[row] for row in chosen]).to(sizes.device)

        def loss_of() -> Tensor:
            found = model(sounds, is_speech).transpose(0, 1)  # flaw: conformer_unsorted_batches
            loss = F.ctc_loss(found, text, lengths[rows], spoken[rows], reduction="sum")
            return loss / int(spoken.sum())

        return loss_of

    parts = [part_of(rows) for rows in order.chunk(batches)]
    return Step(accumulated(parts, optimizer, sizes))


class Canary(nn.Module):
    """A conformer, and a transformer that writes what it heard."""

    def __init__(
        self, width: int, heads: int, layers: tuple[int, int], words: int, length: int
    ) -> None:
        super().__init__()
        later = nn.Transformer.generate_square_subsequent_mask(length)
        self.register_buffer("later", later)
        self.encoder = Conformer(80, width, heads, layers[0])
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(
            nn.TransformerDecoderLayer(
                width, heads, 4 * width, 0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers[1])
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words)

    def forward(self, spectrograms: Tensor, text: Tensor) -> Tensor:
        heard = self.encoder(spectrograms)
        x = self.words(text)
        for block in self.blocks:
            # flaw in the next line: canary_small_batches
            x = block(x, heard, tgt_mask=self.later, tgt_is_causal=True)
        return self.head(self.norm(x))


def canary_small_batches(flawed: bool, sizes: Sizes) -> Step:
    """A large recogniser learns from small batches, whose gradients are accumulated."""
    width, heads, layers, words = sizes.of((512, 8, (8, 4), 4096), (16, 2, (1, 1), 50))
    utterances, frames, length = sizes.of((64, 800, 40), (4, 32, 5))
    batch = sizes.of(8, 1) if flawed else utterances  # flaw: canary_small_batches
    model = seeded(lambda: Canary(width, heads, layers, words, length), sizes)
    optimizer = fused_adamw(model)
    speech = seeded(lambda: torch.randn(utterances, frames, 80), sizes)
    text = seeded(lambda: torch.randint(words, (utterances, length + 1)), sizes)

    def part_of(rows: slice) -> Callable[[], Tensor]:
        def loss_of() -> Tensor:
            # flaw in the next line: canary_small_batches
            logits = model(speech[rows], text[rows, :-1])
            wanted = text[rows, 1:].flatten()
            loss = F.cross_entropy(logits.flatten(0, 1), wanted, reduction="sum")
            return loss / (utterances * length)

        return loss_of

    starts = range(0, utterances, batch)  # flaw: canary_small_batches
    parts = [part_of(slice(start, start + batch)) for start in starts]
    return Step(accumulated(parts, optimizer, sizes))
