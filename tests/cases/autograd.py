"""The cases of compiled autograd: one backward graph of copies, hooks and sums."""

from __future__ import annotations

import torch
import torch._dynamo.compiled_autograd
import torch.nn.functional as F
from torch import nn

from tests.cases import Case
from tests.cases.models import GPT, Block, tokens


def compiled_autograd(device):
    """A whole step under the flag; its second half adds to the gradients of the first."""
    torch._dynamo.config.compiled_autograd = True
    model, inputs = GPT().to(device), tokens(device)

    @torch.compile
    def half():
        model(*inputs).backward()

    def step():
        model.zero_grad()
        half()
        half()

    phases = ("forward", "backward", "gradient_accumulation")
    return Case(step, phases=phases, lines=("F.gelu(self.up(x))", "F.cross_entropy("))


class Stack(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.blocks = nn.ModuleList(Block(64) for _ in range(layers))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def compiled_autograd_blocks(device):
    """Blocks that are compiled by themselves share one backward graph, copied once for each."""
    model = Stack(4).to(device)
    for block in model.blocks:
        block.compile()
    total = torch.compile(lambda x: x.square().sum())
    x = torch.randn(4, 64, 64, device=device)

    def step():
        model.zero_grad()
        with torch._dynamo.compiled_autograd._enable(torch.compile):
            total(model(x)).backward()

    return Case(step, lines=("F.gelu(self.up(x))",))


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x * 2.0


class Broken(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.block, self.end = Block(width), nn.Linear(width, width)

    def forward(self, x):
        x = self.block(x)
        torch._dynamo.graph_break()
        return self.end(Squared.apply(x))


def _pack(tensor):
    return tensor.to(torch.bfloat16)


def _unpack(packed):
    return packed.to(torch.float32)


def _clip(gradient):
    return gradient.clamp(-1.0, 1.0)


def _decay(parameter):
    parameter.grad.add_(parameter.detach(), alpha=0.01)


def _before(gradients):
    return (gradients[0] * 1.5,)


def _after(inputs, outputs):
    return (inputs[0] - 0.25, *inputs[1:])


def compiled_autograd_hooks(device):
    """Several forward graphs, one of them used twice, and every kind of hook in one backward."""
    model = Broken().to(device)
    compiled = torch.compile(model)
    shared = torch.compile(lambda x: F.silu(x) + x)
    total = torch.compile(lambda x: x.square().sum())
    model.end.weight.register_hook(_clip)
    model.block.mlp.up.weight.register_post_accumulate_grad_hook(_decay)
    x = torch.randn(4, 64, 64, device=device, requires_grad=True)

    def step():
        model.zero_grad()
        x.grad = None
        with torch._dynamo.compiled_autograd._enable(torch.compile):
            y = compiled(x)
            with torch.autograd.graph.saved_tensors_hooks(_pack, _unpack):
                y = shared(shared(y))
            y.grad_fn.register_prehook(_before)
            y.grad_fn.register_hook(_after)
            total(y).backward()

    lines = (
        "gradient * x * 2.0",
        "packed.to(torch.float32)",
        "gradient.clamp(-1.0, 1.0)",
        "parameter.grad.add_",
        "gradients[0] * 1.5",
        "inputs[0] - 0.25",
        "F.silu(x) + x",
        "F.gelu(self.up(x))",
    )
    return Case(step, lines=lines)


CASES = (compiled_autograd, compiled_autograd_blocks, compiled_autograd_hooks)
