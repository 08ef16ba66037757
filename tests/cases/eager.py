"""The cases without a compiled graph: what runs eagerly is led by the lines that ran.

They need Python 3.12.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import checkpoint as checkpoints
from torch.utils.data import DataLoader, Dataset

from tests.cases import Case
from tests.cases.models import GPT, tokens, training

FULL = ("forward", "backward", "gradient_accumulation", "optimizer")


def eager(device):
    """A GPT as it is, two micro-batches a step."""
    model = GPT(4).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids, targets = tokens(device)

    def step():
        for part in range(2):
            loss = model(ids[part::2], targets[part::2])
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return Case(step, phases=FULL, scope="all")


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        gate = x.sigmoid()
        return grad * (gate + x * gate * (1 - gate))


class Part(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        hidden = Gate.apply(self.up(x))
        return x + self.down(hidden)


class Parts(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.plain, self.again, self.late = Part(width), Part(width), Part(width)

    def forward(self, x):
        x = self.plain(x)
        x = checkpoints.checkpoint(self.again, x, use_reentrant=False)
        x = checkpoints.checkpoint(self.late, x, use_reentrant=True)
        x.register_hook(lambda grad: grad.clamp(-1, 1))
        return x.square().mean()


def eager_functions(device):
    """A function of the program's own, checkpoints of both kinds, a hook."""
    torch.manual_seed(0)
    model = Parts().to(device)
    x = torch.randn(32, 64, device=device)
    phases = ("forward", "backward", "recompute")
    return Case(training(model, x, compiled=model), phases=phases, scope="all")


def _norm_kernel():
    """Return a Triton kernel that the program launches by itself, past torch's dispatcher."""
    import triton
    import triton.language as tl

    @triton.jit
    def halve_kernel(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < n) * 0.5, mask=at < n)

    def halve(x):
        out = torch.empty_like(x)
        halve_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out

    class Halve(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return halve(x)

        @staticmethod
        def backward(ctx, grad):
            return halve(grad)

    return Halve.apply


def eager_triton(device):
    """A Triton kernel of the program's own, between layers."""
    halve = _norm_kernel()
    layer = nn.Linear(64, 64).to(device)
    x = torch.randn(32, 64, device=device)

    def loss(x):
        return F.silu(halve(layer(x))).sum()

    return Case(training(layer, x, compiled=loss), scope="all")


class Windows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, at):
        return torch.full((64,), at / 64)


def endless(loader):
    while True:
        yield from loader


def eager_loader(device):
    """Batches of worker processes, pinned, and prepared on a stream of their own."""
    on_gpu = device == "cuda"
    loader = DataLoader(Windows(), 16, num_workers=2, pin_memory=on_gpu, persistent_workers=True)
    batches, model = endless(loader), Part(64).to(device)
    preparing = torch.cuda.Stream() if on_gpu else None

    def step():
        with torch.cuda.stream(preparing):
            x = next(batches).to(device, torch.float64, non_blocking=True)
            x = torch.log1p(x).float()
        if preparing is not None:
            torch.cuda.current_stream().wait_stream(preparing)
            x.record_stream(torch.cuda.current_stream())
        model.zero_grad()
        model(x).square().mean().backward()

    return Case(step, scope="all")


def halve_gradient(parameter):
    parameter.grad.mul_(0.5)


class Hooked(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.first, self.second = Part(width), Part(width)
        for part in (self.first, self.second):
            part.register_forward_pre_hook(lambda _, given: (given[0].tanh(),))
            part.register_forward_hook(lambda _, given, out: out + given[0].exp())
            part.register_full_backward_hook(lambda _, given, out: (given[0].clamp(-1, 1),))
            part.up.weight.register_post_accumulate_grad_hook(halve_gradient)

    def forward(self, x):
        x = checkpoints.checkpoint(self.first, x, use_reentrant=False)
        return self.second(x).square().mean()


def eager_hooks(device):
    """Hooks of modules, one of them checkpointed, and of parameters, which all launch."""
    torch.manual_seed(0)
    model = Hooked().to(device)
    x = torch.randn(32, 64, device=device, requires_grad=True)
    phases = ("forward", "backward", "recompute")
    return Case(training(model, x, compiled=model), phases=phases, scope="all")


CASES = (eager, eager_functions, eager_hooks, eager_loader, eager_triton)
