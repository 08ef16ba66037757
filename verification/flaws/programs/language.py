"""Flaws of transformers in training, and of what vision transformers do beside them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Block, Config
from .program import Sizes, Step, autocast, fused_adamw, seeded, training
from .vision import images_of, labels_of

__all__ = [
    "dispatch_by_one_hot",
    "drop_path",
    "mlm_head_everywhere",
    "newton_schulz_per_matrix",
    "patch_conv3d",
    "scaler_with_bfloat16",
]


class EncoderBlock(Block):
    """A block in which each token sees all others."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)


class MaskedLM(nn.Module):
    """BERT with its head for masked tokens."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.tokens = nn.Embedding(config.vocabulary, width)
        self.positions = nn.Parameter(torch.randn(config.context, width) * 0.02)
        self.blocks = nn.Sequential(*(EncoderBlock(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(width)
        self.dense, self.head_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.decoder = nn.Linear(width, config.vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.norm(self.blocks(self.tokens(tokens) + self.positions))

    def head(self, x: Tensor) -> Tensor:
        x = self.head_norm(F.gelu(self.dense(x)))  # flaw: mlm_head_everywhere
        return self.decoder(x)  # flaw: mlm_head_everywhere


def mlm_head_everywhere(flawed: bool, sizes: Sizes) -> Step:
    config = Config(vocabulary=30528, context=512, batch=32)
    if sizes.is_tiny:
        config = gpt.TINY
    model = seeded(lambda: MaskedLM(config), sizes)
    tokens, wanted = gpt.batch_of(config, sizes)
    every = torch.arange(tokens.numel(), device=tokens.device)
    masked = every[every * 37 % 100 < 15]
    labels = torch.full_like(every, -100).index_copy(0, masked, wanted.flatten()[masked])

    def loss() -> Tensor:
        x = model(tokens).flatten(0, 1)
        if flawed:
            scores = model.head(x)  # flaw: mlm_head_everywhere
            return F.cross_entropy(scores, labels)  # flaw: mlm_head_everywhere
        return F.cross_entropy(model.head(x.index_select(0, masked)), labels[masked])

    return Step(training(loss, fused_adamw(model), sizes))


class SwitchMLP(nn.Module):
    """Experts of which each token has one, with room for so many tokens of a group."""

    def __init__(self, width: int, experts: int, capacity: int, is_dense: bool) -> None:
        super().__init__()
        self.experts, self.capacity, self.is_dense = experts, capacity, is_dense
        self.norm, self.gate = nn.LayerNorm(width), nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 4 * width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, 4 * width, width) * width**-0.5 / 2)

    def run(self, x: Tensor) -> Tensor:
        """All experts, each on its own rows."""
        return F.gelu(torch.bmm(x, self.up)).bmm(self.down)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        gate, expert = self.gate(h).softmax(-1).max(-1)
        mask = F.one_hot(expert, self.experts)
        place = ((mask.cumsum(1) - 1) * mask).sum(-1)
        run = self.by_einsum if self.is_dense else self.by_index
        return x + run(h, gate, mask, expert, place)

    def by_einsum(self, h: Tensor, gate: Tensor, mask: Tensor, _: Tensor, place: Tensor) -> Tensor:
        fits = (place < self.capacity).to(h.dtype)
        slots = F.one_hot(place.clamp(max=self.capacity - 1), self.capacity) * fits[..., None]
        dispatch = mask[..., None] * slots[:, :, None]  # flaw: dispatch_by_one_hot
        inputs = torch.einsum("gsec,gsm->egcm", dispatch, h)  # flaw: dispatch_by_one_hot
        outputs = self.run(inputs.flatten(1, 2)).unflatten(1, (-1, self.capacity))
        combine = dispatch * gate[..., None, None]  # flaw: dispatch_by_one_hot
        return torch.einsum("gsec,egcm->gsm", combine, outputs)  # flaw: dispatch_by_one_hot

    def by_index(self, h: Tensor, gate: Tensor, _: Tensor, expert: Tensor, place: Tensor) -> Tensor:
        groups, width = len(h), h.shape[-1]
        room = groups * self.capacity
        group = torch.arange(groups, device=h.device)[:, None]
        slot = expert * room + group * self.capacity + place
        slot = slot.where(place < self.capacity, self.experts * room).flatten()
        rows = h.new_zeros(self.experts * room + 1, width).index_copy(0, slot, h.flatten(0, 1))
        outputs = self.run(rows[:-1].unflatten(0, (self.experts, room))).flatten(0, 1)
        outputs = torch.cat((outputs, outputs.new_zeros(1, width))).index_select(0, slot)
        return outputs.view_as(h) * gate[..., None]


def dispatch_by_one_hot(flawed: bool, sizes: Sizes) -> Step:
    width, layers, groups, tokens = sizes.of((1024, 4, 8, 1024), (16, 2, 2, 32))
    experts = sizes.of(16, 4)
    capacity = tokens * 5 // (4 * experts)
    model = seeded(
        lambda: nn.Sequential(
            *(SwitchMLP(width, experts, capacity, flawed) for _ in range(layers))
        ),
        sizes,
    )
    x = seeded(lambda: torch.randn(groups, tokens, width), sizes)
    return Step(training(lambda: model(x).float().square().mean(), fused_adamw(model), sizes))


def scaler_with_bfloat16(flawed: bool, sizes: Sizes) -> Step:
    model, tokens, targets = gpt.made(sizes, **sizes.of({"batch": 4, "context": 512}, {}))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler(sizes.device)

    def step() -> Tensor:
        optimizer.zero_grad()
        with autocast(sizes):
            loss = gpt.loss_of(model, tokens, targets)
        if flawed:
            scaler.scale(loss).backward()  # flaw: scaler_with_bfloat16
            scaler.step(optimizer)  # flaw: scaler_with_bfloat16
            scaler.update()  # flaw: scaler_with_bfloat16
        else:
            loss.backward()
            optimizer.step()
        return loss.detach()

    return Step(step)


def zeropower_via_newtonschulz5(gradient: Tensor, steps: int = 5) -> Tensor:
    """Make a matrix, or each of a batch of them, nearly orthogonal."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = gradient.bfloat16()
    is_tall = x.size(-2) > x.size(-1)
    if is_tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)  # flaw: newton_schulz_per_matrix
    for _ in range(steps):
        square = x @ x.mT  # flaw: newton_schulz_per_matrix
        polynomial = b * square + c * square @ square  # flaw: newton_schulz_per_matrix
        x = a * x + polynomial @ x  # flaw: newton_schulz_per_matrix
    return x.mT if is_tall else x


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal by Newton and Schulz."""

    def __init__(self, params: list[nn.Parameter], lr: float = 0.001) -> None:
        super().__init__(params, {"lr": lr})
        self.momentum = [torch.zeros_like(each) for each in params]

    @torch.no_grad()
    def step(self) -> None:
        (group,) = self.param_groups
        for p, buffer in zip(group["params"], self.momentum, strict=True):
            buffer.lerp_(p.grad, 0.05)  # flaw: newton_schulz_per_matrix
            update = p.grad.lerp_(buffer, 0.95)  # flaw: newton_schulz_per_matrix
            update = zeropower_via_newtonschulz5(update)  # flaw: newton_schulz_per_matrix
            scale = max(1, p.size(-2) / p.size(-1)) ** 0.5
            p.add_(update, alpha=-group["lr"] * scale)  # flaw: newton_schulz_per_matrix


class BatchedMuon(Muon):
    """The same for all matrices of a shape at once."""

    @torch.no_grad()
    def step(self) -> None:
        (group,) = self.param_groups
        gradients = [p.grad for p in group["params"]]
        torch._foreach_lerp_(self.momentum, gradients, 0.05)
        torch._foreach_lerp_(gradients, self.momentum, 0.95)
        shapes: dict[torch.Size, list[int]] = {}
        for at, gradient in enumerate(gradients):
            shapes.setdefault(gradient.shape, []).append(at)
        for shape, places in shapes.items():
            updates = zeropower_via_newtonschulz5(torch.stack([gradients[at] for at in places]))
            scale = max(1, shape[0] / shape[1]) ** 0.5
            weights = [group["params"][at] for at in places]
            torch._foreach_add_(weights, list(updates.float()), alpha=-group["lr"] * scale)


def newton_schulz_per_matrix(flawed: bool, sizes: Sizes) -> Step:
    model, tokens, targets = gpt.made(sizes, batch=sizes.of(8, 2))
    matrices = [each for each in model.blocks.parameters() if each.ndim == 2]
    known = set(matrices)
    others = [each for each in model.parameters() if each not in known]
    muon = (Muon if flawed else BatchedMuon)(matrices)
    adam = torch.optim.AdamW(others, lr=1e-4, fused=True)

    def step() -> Tensor:
        model.zero_grad()
        with autocast(sizes):
            loss = gpt.loss_of(model, tokens, targets)
        loss.backward()
        adam.step()
        muon.step()  # flaw: newton_schulz_per_matrix
        return loss.detach()

    return Step(step)


def drop_path_of(x: Tensor, rate: float) -> Tensor:
    """Zero the branch of some samples and scale that of the others."""
    random_tensor = x.new_empty(len(x), 1, 1).bernoulli_(1 - rate)
    return x * random_tensor.div_(1 - rate)  # flaw: drop_path


class StochasticBlock(EncoderBlock):
    """A block with stochastic depth."""

    rate = 0.4

    def forward(self, x: Tensor) -> Tensor:
        x = x + drop_path_of(self.attention(self.norm_1(x)), self.rate)  # flaw: drop_path
        return x + drop_path_of(self.mlp(self.norm_2(x)), self.rate)  # flaw: drop_path


class SubsetBlock(EncoderBlock):
    """The same, where a branch runs on the samples that keep it."""

    rate = 0.4

    def add(self, x: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
        kept = max(int(len(x) * (1 - self.rate)), 1)
        chosen = torch.randperm(len(x), device=x.device)[:kept]
        result = branch(x.index_select(0, chosen)).to(x.dtype)
        return x.index_add(0, chosen, result, alpha=len(x) / kept)

    def forward(self, x: Tensor) -> Tensor:
        x = self.add(x, lambda some: self.attention(self.norm_1(some)))
        return self.add(x, lambda some: self.mlp(self.norm_2(some)))


class PatchClassifier(nn.Module):
    """ViT-B/16 with blocks of some kind."""

    def __init__(self, config: Config, block: Callable[[Config], nn.Module]) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, config.width, 16, 16)
        self.blocks = nn.Sequential(*(block(config) for _ in range(config.layers)))
        self.norm, self.head = nn.LayerNorm(config.width), nn.Linear(config.width, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


def drop_path(flawed: bool, sizes: Sizes) -> Step:
    config = gpt.TINY if sizes.is_tiny else Config()
    block = StochasticBlock if flawed else SubsetBlock
    model = seeded(lambda: PatchClassifier(config, block), sizes)
    images = images_of(sizes, 96)
    labels, optimizer = labels_of(images), fused_adamw(model)
    return Step(training(lambda: F.cross_entropy(model(images), labels), optimizer, sizes))


class VisionEncoder(nn.Module):
    """Qwen2-VL's encoder of patches of two frames."""

    patch = (3, 2, 14, 14)

    def __init__(self, config: Config, is_linear: bool) -> None:
        super().__init__()
        self.is_linear = is_linear
        self.proj = nn.Conv3d(3, config.width, self.patch[1:], self.patch[1:], bias=False)
        self.blocks = nn.Sequential(*(EncoderBlock(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, pixel_values: Tensor) -> Tensor:
        if self.is_linear:
            x = F.linear(pixel_values, self.proj.weight.flatten(1))
        else:
            x = pixel_values.view(-1, *self.patch)
            x = self.proj(x).view(len(x), -1)  # flaw: patch_conv3d
        return self.norm(self.blocks(x[None]))


def patch_conv3d(flawed: bool, sizes: Sizes) -> Step:
    config = Config(layers=32, width=1280, heads=16, mlp_width=5120)
    if sizes.is_tiny:
        config = gpt.TINY
    model = seeded(lambda: VisionEncoder(config, is_linear=not flawed), sizes).eval().bfloat16()
    count = sizes.of(512, 8)
    pixel_values = seeded(lambda: torch.randn(count, 3 * 2 * 14 * 14), sizes).bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        return model(pixel_values).float().abs().mean()

    return Step(step)
