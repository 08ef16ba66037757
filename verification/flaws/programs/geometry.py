"""Flaws of point clouds, of graphs, of recommenders and of policies."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "bag_by_embedding",
    "distribution_validation",
    "farthest_point_loop",
    "gather_scatter_messages",
]


def farthest_point_sample(xyz: Tensor, npoint: int) -> Tensor:
    """Indices of points that are far from each other."""
    batch, count, _ = xyz.shape
    centroids = torch.zeros(batch, npoint, dtype=torch.long, device=xyz.device)
    distance = torch.full((batch, count), 1e10, device=xyz.device)
    farthest = torch.zeros(batch, dtype=torch.long, device=xyz.device)
    batch_indices = torch.arange(batch, dtype=torch.long, device=xyz.device)
    for i in range(npoint):
        centroids[:, i] = farthest  # flaw: farthest_point_loop
        centroid = xyz[batch_indices, farthest, :].view(batch, 1, 3)  # flaw: farthest_point_loop
        dist = torch.sum((xyz - centroid) ** 2, -1)  # flaw: farthest_point_loop
        distance = torch.min(distance, dist)  # flaw: farthest_point_loop
        farthest = torch.max(distance, -1)[1]  # flaw: farthest_point_loop
    return centroids


def graphed(function: Callable[[Tensor], Tensor], example: Tensor) -> Callable[[Tensor], Tensor]:
    """A function of one tensor as a CUDA graph."""
    held = example.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function(held)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function(held)

    def replay(x: Tensor) -> Tensor:
        held.copy_(x)
        graph.replay()
        return result

    return replay


class SetAbstraction(nn.Module):
    """PointNet++'s layer: a small network over the neighbours of each sampled point."""

    def __init__(self, inputs: int, widths: tuple[int, ...], neighbours: int) -> None:
        super().__init__()
        self.neighbours = neighbours
        self.layers = nn.Sequential()
        for width in widths:
            self.layers.append(nn.Conv2d(inputs, width, 1))
            self.layers.append(nn.BatchNorm2d(width))
            self.layers.append(nn.ReLU(True))
            inputs = width

    def forward(self, xyz: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        centres = xyz.gather(1, chosen[..., None].expand(-1, -1, 3))
        near = torch.cdist(centres, xyz).topk(self.neighbours, largest=False).indices
        flat = near.flatten(1)[..., None].expand(-1, -1, 3)
        grouped = xyz.gather(1, flat).unflatten(1, near.shape[1:]) - centres.unsqueeze(2)
        return centres, self.layers(grouped.permute(0, 3, 2, 1)).amax(2)


class PointNet(nn.Module):
    """A classifier of point clouds."""

    def __init__(self, widths: tuple[int, ...], neighbours: int, classes: int) -> None:
        super().__init__()
        self.local = SetAbstraction(3, widths, neighbours)
        self.shared = nn.Sequential(
            nn.Conv1d(widths[-1] + 3, 512, 1), nn.ReLU(), nn.Conv1d(512, 1024, 1)
        )
        self.head = nn.Linear(1024, classes)

    def forward(self, xyz: Tensor, chosen: Tensor) -> Tensor:
        centres, features = self.local(xyz, chosen)
        features = torch.cat((centres.transpose(1, 2), features), 1)
        return self.head(self.shared(features).amax(2))


def farthest_point_loop(flawed: bool, sizes: Sizes) -> Step:
    count, npoint, neighbours, batch = sizes.of((1024, 128, 64, 96), (32, 8, 4, 2))
    model = seeded(lambda: PointNet(sizes.of((128, 128, 256), (8, 8)), neighbours, 40), sizes)
    clouds = seeded(lambda: torch.rand(batch, count, 3), sizes)
    labels = torch.arange(batch, device=clouds.device) % 40

    def sample(xyz: Tensor) -> Tensor:
        with torch.no_grad():
            return farthest_point_sample(xyz, npoint)

    if not (flawed or sizes.is_tiny):
        sample = graphed(sample, clouds)

    def loss() -> Tensor:
        return F.cross_entropy(model(clouds, sample(clouds)), labels)

    return Step(training(loss, fused_adamw(model), sizes))


class Propagate(nn.Module):
    """Sums of messages over edges, in the way of PyG."""

    def __init__(self, edge_index: Tensor, count: int) -> None:
        super().__init__()
        self.source, self.target = edge_index
        self.count = count

    def forward(self, x: Tensor) -> Tensor:
        message = x.index_select(0, self.source)  # flaw: gather_scatter_messages
        index = self.target.view(-1, 1).expand_as(message)
        out = message.new_zeros(self.count, message.size(1))
        return out.scatter_add_(0, index, message)  # flaw: gather_scatter_messages


class SparseProduct(torch.autograd.Function):
    """A product with a sparse matrix whose transpose is known."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, x: Tensor, adj: Tensor, adj_t: Tensor
    ) -> Tensor:
        ctx.adj_t = adj_t
        return torch.sparse.mm(adj, x)

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, gradient: Tensor
    ) -> tuple[Tensor, None, None]:
        return torch.sparse.mm(ctx.adj_t, gradient), None, None


class PropagateSparse(nn.Module):
    """The same by products with the sparse adjacency matrix."""

    def __init__(self, edge_index: Tensor, count: int) -> None:
        super().__init__()
        ones = torch.ones(edge_index.shape[1], device=edge_index.device)
        self.adj, self.adj_t = (
            torch.sparse_coo_tensor(pairs, ones, (count, count), check_invariants=False).coalesce()
            for pairs in (edge_index.flip(0), edge_index)
        )

    def forward(self, x: Tensor) -> Tensor:
        return SparseProduct.apply(x, self.adj, self.adj_t)


class GIN(nn.Module):
    """A graph isomorphism network."""

    def __init__(self, inputs: int, width: int, classes: int, layers: int) -> None:
        super().__init__()
        self.into = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
            for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor, propagate: nn.Module) -> Tensor:
        x = self.into(x)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x + propagate(x)).relu())
        return self.head(x)


def gather_scatter_messages(flawed: bool, sizes: Sizes) -> Step:
    nodes, edges, width, classes = sizes.of((80_000, 1_200_000, 128, 40), (30, 90, 8, 4))
    model = seeded(lambda: GIN(100, width, classes, 3), sizes)
    x, edge_index = seeded(
        lambda: (torch.randn(nodes, 100), torch.randint(0, nodes, (2, edges))), sizes
    )
    propagate = (Propagate if flawed else PropagateSparse)(edge_index, nodes)
    labels = torch.arange(nodes, device=x.device) % classes

    def loss() -> Tensor:
        return F.cross_entropy(model(x, propagate), labels)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class TwoTowers(nn.Module):
    """A user by the mean of what was watched, beside the next item."""

    def __init__(self, rows: int, width: int, pools: bool) -> None:
        super().__init__()
        weights = torch.randn(rows, width) * 0.05
        self.pools = pools
        if pools:
            self.history = nn.EmbeddingBag.from_pretrained(weights, freeze=False, mode="mean")
        else:
            self.history = nn.Embedding.from_pretrained(weights, freeze=False)
        self.items = nn.Embedding(rows, width)
        self.user = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, width))

    def forward(self, watched: Tensor, item: Tensor) -> Tensor:
        if self.pools:
            mean = self.history(watched)
        else:
            rows = self.history(watched)  # flaw: bag_by_embedding
            mean = rows.mean(1)  # flaw: bag_by_embedding
        return (self.user(mean) * self.items(item)).sum(1)


def bag_by_embedding(flawed: bool, sizes: Sizes) -> Step:
    rows, width, batch, watched = sizes.of((300_000, 128, 32768, 60), (50, 8, 4, 6))
    model = seeded(lambda: TwoTowers(rows, width, pools=not flawed), sizes)
    history = seeded(lambda: torch.randint(0, rows, (batch, watched)), sizes)
    item = history[:, 0].flip(0)
    clicks = item.remainder(2).float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss() -> Tensor:
        return F.binary_cross_entropy_with_logits(model(history, item), clicks)

    return Step(training(loss, optimizer, sizes, is_mixed=False))


class Agent(nn.Module):
    """Actor and critic of continuous control."""

    def __init__(self, observed: int, actions: int, width: int, options: dict[str, bool]) -> None:
        super().__init__()
        self.options = options
        self.critic, self.actor_mean = (
            nn.Sequential(
                nn.Linear(observed, width),
                nn.ELU(),
                nn.Linear(width, width // 2),
                nn.ELU(),
                nn.Linear(width // 2, outputs),
            )
            for outputs in (1, actions)
        )
        self.actor_logstd = nn.Parameter(torch.zeros(1, actions))

    def get_action_and_value(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        action_mean = self.actor_mean(x)
        action_std = torch.exp(self.actor_logstd.expand_as(action_mean))
        probs = Normal(action_mean, action_std, **self.options)  # flaw: distribution_validation
        logprob = probs.log_prob(action).sum(1)  # flaw: distribution_validation
        return logprob, probs.entropy().sum(1), self.critic(x)


def ppo_loss(agent: Agent, batch: dict[str, Tensor], clip: float = 0.2) -> Tensor:
    """PPO's clipped loss with that of the values and the entropy."""
    logprob, entropy, value = agent.get_action_and_value(batch["obs"], batch["actions"])
    ratio = (logprob - batch["logprobs"]).exp()
    advantages = batch["advantages"]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    policy = torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - clip, 1 + clip)).mean()
    values = 0.5 * ((value.view(-1) - batch["returns"]) ** 2).mean()
    return policy - 0.01 * entropy.mean() + 0.5 * values


def distribution_validation(flawed: bool, sizes: Sizes) -> Step:
    observed, actions, width, count = sizes.of((48, 12, 512, 24_576), (6, 2, 8, 16))
    options = {} if flawed else {"validate_args": False}
    agent = seeded(lambda: Agent(observed, actions, width, options), sizes)
    obs, taken = seeded(lambda: (torch.randn(count, observed), torch.randn(count, actions)), sizes)
    rollout = {
        "obs": obs,
        "actions": taken,
        "logprobs": -taken.square().sum(1) / 2 - 0.9 * actions,
        "advantages": taken.mean(1),
        "returns": obs.mean(1),
    }
    minibatches = [{key: value[at::4] for key, value in rollout.items()} for at in range(4)]
    optimizer = fused_adamw(agent)

    def step() -> Tensor:
        for batch in minibatches:
            loss = ppo_loss(agent, batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
        return loss.detach()

    return Step(step)
