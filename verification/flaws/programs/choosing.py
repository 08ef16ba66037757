"""Flaws of recommenders, of agents and their planner, of forecasts, of experts, of a transducer."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

from . import gpt
from .gpt import Block, Config
from .language import EncoderBlock
from .program import Sizes, Step, compiled, fused_adamw, seeded, training

__all__ = [
    "agents_one_by_one",
    "all_items_scored",
    "embeddings_resampled",
    "experts_split_by_tolist",
    "negatives_gathered_per_triple",
    "planner_repeats_states",
    "transducer_one_by_one",
]


class SASRec(nn.Module):
    """What a user will choose next, from what was chosen before."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.items = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Parameter(torch.randn(config.context, config.width) * 0.02)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, history: Tensor) -> Tensor:
        return self.norm(self.blocks(self.items(history) + self.positions)).flatten(0, 1)


def all_items_scored(flawed: bool, sizes: Sizes) -> Step:
    large = Config(4, 128, 2, 512, vocabulary=200_000, context=50, batch=64)
    config = sizes.of(large, gpt.TINY)
    sampled = sizes.of(2048, 16)
    model = seeded(lambda: SASRec(config), sizes)
    torch.nn.init.normal_(model.items.weight, std=0.02)
    history, chosen = gpt.batch_of(config, sizes)
    chosen = chosen.flatten()

    def loss() -> Tensor:
        users = model(history)
        if flawed:
            logits = F.linear(users, model.items.weight)  # flaw: all_items_scored
            return F.cross_entropy(logits, chosen)  # flaw: all_items_scored
        others = torch.randint(0, config.vocabulary, (sampled,), device=users.device)
        negatives = F.linear(users, model.items(others))
        right = (users * model.items(chosen)).sum(1, keepdim=True).to(negatives.dtype)
        logits = torch.cat((right, negatives.masked_fill(chosen[:, None] == others, -1e4)), 1)
        return F.cross_entropy(logits, torch.zeros_like(chosen))

    return Step(training(loss, fused_adamw(model), sizes))


class DistMult(nn.Module):
    """Embeddings of the entities and the relations of a graph of knowledge."""

    def __init__(self, entities: int, relations: int, width: int) -> None:
        super().__init__()
        self.entities = nn.Embedding(entities, width)
        self.relations = nn.Embedding(relations, width)

    def scores_of_gathered(self, known: Tensor, relation: Tensor, others: Tensor) -> Tensor:
        """How likely each of its own candidates (triples, n) completes a triple."""
        query = self.entities(known) * self.relations(relation)
        candidates = self.entities(others)  # flaw: negatives_gathered_per_triple
        return (query[:, None] * candidates).sum(2)  # flaw: negatives_gathered_per_triple

    def scores_of_product(self, known: Tensor, relation: Tensor, others: Tensor) -> Tensor:
        """The same, picked from the scores of all entities."""
        query = self.entities(known) * self.relations(relation)
        return (query @ self.entities.weight.T).gather(1, others)


def negatives_gathered_per_triple(flawed: bool, sizes: Sizes) -> Step:
    entities, relations, width, triples, negatives = sizes.of(
        (14_951, 1345, 256, 1024, 512), (12, 3, 4, 5, 6)
    )
    model = seeded(lambda: DistMult(entities, relations, width), sizes)
    subjects, objects, relation, false_subjects, false_objects = seeded(
        lambda: (
            torch.randint(0, entities, (triples, 1)),
            torch.randint(0, entities, (triples, 1)),
            torch.randint(0, relations, (triples,)),
            torch.randint(0, entities, (triples, negatives)),
            torch.randint(0, entities, (triples, negatives)),
        ),
        sizes,
    )
    truth = torch.zeros(triples, negatives + 1, device=sizes.device)
    truth[:, 0] = 1
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    score = model.scores_of_gathered if flawed else model.scores_of_product

    def loss() -> Tensor:
        total = relation.new_zeros((), dtype=torch.float32)
        for known, true, false in (
            (subjects, objects, false_objects),
            (objects, subjects, false_subjects),
        ):
            # flaw in the next line: negatives_gathered_per_triple
            scores = score(known[:, 0], relation, torch.cat((true, false), 1))
            total = total + F.binary_cross_entropy_with_logits(scores / width**0.5, truth)
        return total

    return Step(training(loss, optimizer, sizes, is_mixed=False))


class PathPlanner(nn.Module):
    """The moves of robots that see a part of a map each, and tell each other what they see."""

    def __init__(self, width: int, hops: int, one_by_one: bool) -> None:
        super().__init__()
        self.one_by_one = one_by_one
        widths = [3, width, width, 2 * width, 2 * width, 4 * width]
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths))
        self.compress = nn.Linear(4 * width, 4 * width)
        self.filters = nn.ModuleList(nn.Linear(4 * width, 4 * width) for _ in range(hops))
        self.moves = nn.Linear(4 * width, 5)

    def seen(self, maps: Tensor) -> Tensor:
        x = maps
        for at, conv in enumerate(self.convs):
            x = F.relu(conv(x))  # flaw: agents_one_by_one
            x = F.max_pool2d(x, 2) if at % 2 else x  # flaw: agents_one_by_one
        return F.relu(self.compress(x.amax((2, 3))))  # flaw: agents_one_by_one

    def forward(self, maps: Tensor, near: Tensor) -> Tensor:
        """The scores of moves, of maps (batch, robots, 3, side, side) and who is near to whom."""
        batch, robots = maps.shape[:2]
        if self.one_by_one:
            features = []
            for robot in range(robots):
                features.append(self.seen(maps[:, robot]))  # flaw: agents_one_by_one
            told = torch.stack(features, 1)
        else:
            told = self.seen(maps.flatten(0, 1)).unflatten(0, (batch, robots))
        x = torch.zeros_like(told)
        for layer in self.filters:
            x = x + layer(told)
            told = near @ told
        x = F.relu(x)
        if not self.one_by_one:
            return self.moves(x)
        # flaw in the next line: agents_one_by_one
        return torch.stack([self.moves(x[:, robot]) for robot in range(robots)], 1)


def agents_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    width, hops, batch, robots, side = sizes.of((32, 3, 64, 20, 11), (4, 2, 2, 3, 8))
    model = seeded(lambda: PathPlanner(width, hops, flawed), sizes)
    maps, near, moves = seeded(
        lambda: (
            torch.rand(batch, robots, 3, side, side),
            (torch.rand(batch, robots, robots) < 0.2).float() / robots,
            torch.randint(0, 5, (batch, robots)),
        ),
        sizes,
    )

    def loss() -> Tensor:
        return F.cross_entropy(model(maps, near).flatten(0, 1), moves.flatten())

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class ResampleNorm(nn.Module):
    """A vector stretched to another length, gated and normed, in each moment."""

    def __init__(self, wide: int, out: int, by_interpolate: bool) -> None:
        super().__init__()
        self.out, self.by_interpolate = out, by_interpolate
        self.gate, self.norm = nn.Parameter(torch.zeros(out)), nn.LayerNorm(out)
        rows = F.interpolate(torch.eye(wide)[:, None], out, mode="linear", align_corners=True)
        self.register_buffer("stretch", rows[:, 0])

    def forward(self, x: Tensor) -> Tensor:
        """Of x (batch, time, wide)."""
        if self.by_interpolate:
            flat = x.flatten(0, 1)[:, None]
            # flaw in the next line: embeddings_resampled
            y = F.interpolate(flat, self.out, mode="linear", align_corners=True)
            y = y[:, 0].unflatten(0, x.shape[:2])
        else:
            y = x @ self.stretch
        return self.norm(y * self.gate.sigmoid() * 2)


class FusionForecaster(nn.Module):
    """A small temporal fusion transformer: weights of variables, an LSTM, and attention."""

    def __init__(self, variables: int, wide: int, width: int, ahead: int, flawed: bool) -> None:
        super().__init__()
        self.ahead = ahead
        self.embed = nn.ModuleList(nn.Linear(1, wide) for _ in range(variables))
        self.stretch = nn.ModuleList(ResampleNorm(wide, width, flawed) for _ in range(variables))
        self.choose = nn.Sequential(
            nn.Linear(variables * wide, width), nn.ELU(), nn.Linear(width, variables)
        )
        self.lstm = nn.LSTM(width, width, batch_first=True)
        config = Config(width=width, heads=4, mlp_width=4 * width)
        self.block, self.out = EncoderBlock(config), nn.Linear(width, 3)

    def forward(self, past: Tensor) -> Tensor:
        each = [layer(x[..., None]) for layer, x in zip(self.embed, past.unbind(2), strict=True)]
        weights = self.choose(torch.cat(each, 2)).softmax(2)
        # flaw in the next line: embeddings_resampled
        wide = [stretch(x) for stretch, x in zip(self.stretch, each, strict=True)]
        x = (torch.stack(wide, 2) * weights[..., None]).sum(2)
        x = self.block(self.lstm(x)[0])
        return self.out(x[:, -self.ahead :])


def embeddings_resampled(flawed: bool, sizes: Sizes) -> Step:
    variables, wide, width, batch, length = sizes.of((6, 24, 128, 32, 96), (2, 4, 8, 2, 5))
    ahead = sizes.of(24, 2)
    model = seeded(lambda: FusionForecaster(variables, wide, width, ahead, flawed), sizes)
    past, future = seeded(
        lambda: (torch.randn(batch, length, variables), torch.randn(batch, ahead, 1)), sizes
    )
    quantiles = torch.tensor([0.1, 0.5, 0.9], device=sizes.device)

    def loss() -> Tensor:
        errors = future - model(past)
        return torch.maximum(quantiles * errors, (quantiles - 1) * errors).mean()

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class Dynamics(nn.Module):
    """The next state of a robot from its state and action, and what a state costs."""

    def __init__(self, states: int, actions: int, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(states + actions, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, states),
        )

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        # flaw in the next line: planner_repeats_states
        return state + 0.1 * self.net(torch.cat((state, action), -1)).tanh()

    def cost(self, state: Tensor, action: Tensor) -> Tensor:
        # flaw in the next line: planner_repeats_states
        return state.square().sum(-1) + 0.1 * action.square().sum(-1)


def costs_of_repeated(model: Dynamics, start: Tensor, actions: Tensor, bound: float) -> Tensor:
    """What each of many sequences of actions (samples, time, actions) costs, with all extras."""
    samples, moments, size = actions.shape
    state = start.view(1, -1).repeat(samples, 1)
    state = state.repeat(1, 1, 1)  # flaw: planner_repeats_states
    total = torch.zeros(samples, device=start.device)
    spread = torch.zeros_like(total)
    states, taken = [], []
    low, high = torch.full_like(start[:size], -bound), torch.full_like(start[:size], bound)
    for t in range(moments):
        u = actions[:, t].repeat(1, 1, 1)  # flaw: planner_repeats_states
        u = torch.max(torch.min(u, high), low)  # flaw: planner_repeats_states
        # flaw in the next line: planner_repeats_states
        flat = model(state.reshape(samples, -1), u.reshape(samples, -1))
        state = flat.reshape(1, samples, -1)
        cost = model.cost(state, u)  # flaw: planner_repeats_states
        total = total + cost.mean(0)  # flaw: planner_repeats_states
        spread = spread + cost.var(0, correction=0) * 0.95**t  # flaw: planner_repeats_states
        states.append(state)
        taken.append(u)
    kept, done = torch.stack(states, -2), torch.stack(taken, -2)  # flaw: planner_repeats_states
    return total + 0 * (kept.shape[1] + done.shape[1]) + spread


def costs_of_samples(model: Dynamics, start: Tensor, actions: Tensor, bound: float) -> Tensor:
    """The same without what a single rollout of each sample needs not."""
    actions = actions.clamp(-bound, bound)
    state = start.expand(len(actions), -1)
    total = 0.1 * actions.square().sum((1, 2))
    for u in actions.unbind(1):
        state = model(state, u)
        total = total + state.square().sum(1)
    return total


def planner_repeats_states(flawed: bool, sizes: Sizes) -> Step:
    states, actions, width, samples, moments = sizes.of((12, 4, 256, 2048, 40), (3, 2, 8, 6, 4))
    model = seeded(lambda: Dynamics(states, actions, width), sizes).eval()
    start, spread = seeded(lambda: (torch.randn(states), torch.eye(actions) * 0.25), sizes)
    white = seeded(lambda: torch.randn(samples, moments, actions), sizes)
    plan = torch.zeros(moments, actions, device=sizes.device)
    factor = torch.linalg.cholesky(spread)

    def noise() -> Tensor:
        if flawed:
            centre = torch.zeros_like(plan[0])
            known = MultivariateNormal(centre, spread)  # flaw: planner_repeats_states
            return known.loc + white @ known.scale_tril.T
        return white @ factor.T

    @torch.inference_mode()
    def step() -> Tensor:
        tried = plan + noise()  # flaw: planner_repeats_states
        costs_of = costs_of_repeated if flawed else costs_of_samples
        costs = costs_of(model, start, tried, 1.0)  # flaw: planner_repeats_states
        weights = (-(costs - costs.min())).softmax(0)
        better = torch.einsum("k,kta->ta", weights, tried)
        return better.square().mean() + costs.mean() / moments

    return Step(step)


class HashedExperts(nn.Module):
    """Experts to which tokens go by their words, as hash layers do."""

    def __init__(self, config: Config, experts: int, by_list: bool) -> None:
        super().__init__()
        self.experts, self.by_list = experts, by_list
        shape = (experts, config.width, config.mlp_width)
        self.up = nn.Parameter(torch.randn(shape) / config.width**0.5)
        self.down = nn.Parameter(torch.randn(shape).mT.contiguous() / config.mlp_width**0.5)

    def by_loop(self, x: Tensor, counts: Tensor) -> Tensor:
        sizes = counts.tolist()  # flaw: experts_split_by_tolist
        parts = []
        for at, part in enumerate(x.split(sizes)):  # flaw: experts_split_by_tolist
            # flaw in the next line: experts_split_by_tolist
            parts.append(F.gelu(part @ self.up[at].bfloat16()) @ self.down[at].bfloat16())
        return torch.cat(parts)  # flaw: experts_split_by_tolist

    def grouped(self, x: Tensor, counts: Tensor) -> Tensor:
        ends = counts.cumsum(0).int()
        y = F.gelu(torch._grouped_mm(x, self.up.bfloat16(), offs=ends))
        return torch._grouped_mm(y, self.down.bfloat16(), offs=ends)

    def forward(self, x: Tensor, expert: Tensor) -> Tensor:
        order = expert.argsort(stable=True)
        counts = (expert[:, None] == torch.arange(self.experts, device=x.device)).sum(0)
        sent = x.flatten(0, 1).bfloat16().index_select(0, order)
        # flaw in the next line: experts_split_by_tolist
        y = self.by_loop(sent, counts) if self.by_list else self.grouped(sent, counts)
        return torch.zeros_like(y).index_copy(0, order, y).view_as(x)


class ExpertBlock(Block):
    """A block of a GPT with experts in place of the MLP."""

    def __init__(self, config: Config, experts: int, by_list: bool) -> None:
        super().__init__(config)
        del self.up, self.down
        self.mixed = HashedExperts(config, experts, by_list)

    def forward(self, x: Tensor, expert: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.mixed(self.norm_2(x), expert)  # flaw: experts_split_by_tolist


def experts_split_by_tolist(flawed: bool, sizes: Sizes) -> Step:
    large = Config(6, 512, 8, 1024, vocabulary=32768, context=512, batch=8)
    config = sizes.of(large, gpt.TINY)
    experts = 8
    words = seeded(lambda: nn.Embedding(config.vocabulary, config.width), sizes)
    blocks = seeded(
        lambda: nn.ModuleList(ExpertBlock(config, experts, flawed) for _ in range(config.layers)),
        sizes,
    )
    runs = [compiled(block, sizes) for block in blocks]
    tokens, targets = gpt.batch_of(config, sizes)
    expert = (tokens.flatten() * 2654435761 >> 7) % experts

    def loss() -> Tensor:
        x = words(tokens)
        for block in runs:
            x = block(x, expert)  # flaw: experts_split_by_tolist
        logits = F.linear(x, words.weight * config.width**-0.5)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return Step(training(loss, fused_adamw(nn.ModuleList((words, blocks))), sizes))


class Transducer(nn.Module):
    """A stateless transducer: an encoder of frames, two last words, and what joins them."""

    def __init__(self, config: Config, bands: int) -> None:
        super().__init__()
        self.into = nn.Linear(bands, config.width)
        self.encoder = nn.Sequential(*(EncoderBlock(config) for _ in range(config.layers)))
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.context = nn.Linear(2 * config.width, config.width)
        self.out = nn.Linear(config.width, config.vocabulary)

    def decoder(self, words: Tensor) -> Tensor:
        return self.context(self.words(words).flatten(1))  # flaw: transducer_one_by_one

    def joined(self, frame: Tensor, words: Tensor) -> Tensor:
        return self.out((frame + words).tanh())  # flaw: transducer_one_by_one


def heard_one_by_one(model: Transducer, frames: Tensor) -> list[list[int]]:
    """The words of each utterance by a greedy search; the word 0 says that a frame has none."""
    texts = []
    for utterance in frames:
        text = [0, 0]
        known = model.decoder(torch.tensor([text[-2:]], device=frames.device))
        for frame in utterance:
            scores = model.joined(frame, known)  # flaw: transducer_one_by_one
            word = scores.argmax().item()  # flaw: transducer_one_by_one
            if word != 0:
                text.append(word)
                last = torch.tensor([text[-2:]], device=frames.device)
                known = model.decoder(last)  # flaw: transducer_one_by_one
        texts.append(text[2:])
    return texts


def heard_at_once(model: Transducer, frames: Tensor) -> list[list[int]]:
    """The same for all utterances, frame by frame."""
    texts = [[0, 0] for _ in frames]
    known = model.decoder(torch.zeros(len(frames), 2, dtype=torch.long, device=frames.device))
    for frame in frames.unbind(1):
        words = model.joined(frame, known).argmax(1).tolist()
        for text, word in zip(texts, words, strict=True):
            if word != 0:
                text.append(word)
        if any(words):
            last = torch.tensor([text[-2:] for text in texts], device=frames.device)
            known = model.decoder(last)
    return [text[2:] for text in texts]


def transducer_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    config = Config(layers=8, width=512, heads=8, mlp_width=2048, vocabulary=500)
    if sizes.is_tiny:
        config = gpt.TINY
    bands, batch, frames = sizes.of((80, 12, 64), (8, 3, 6))
    model = seeded(lambda: Transducer(config, bands), sizes).eval()
    features = seeded(lambda: torch.randn(batch, frames, bands), sizes)
    torch.nn.init.constant_(model.out.bias[:1], 1.0)
    heard = heard_one_by_one if flawed else heard_at_once

    @torch.inference_mode()
    def step() -> Tensor:
        seen = model.encoder(model.into(features))
        texts = heard(model, seen)  # flaw: transducer_one_by_one
        return torch.tensor([len(text) / frames for text in texts]).mean()

    return Step(step)
