"""The cases of how a step comes to one or to many compiled graphs."""

from __future__ import annotations

import torch
from torch import nn

from tests.cases import Case
from tests.cases.models import GPT, MLP, tokens, training


def dynamic_shapes(device):
    model = MLP(64).to(device)
    compiled = torch.compile(lambda x: model(x).square().mean(), dynamic=True)
    sizes = iter([16, 24, 40, 56, 72, 88, 104, 120, 136, 152])

    def step():
        model.zero_grad()
        compiled(torch.randn(next(sizes), 64, device=device)).backward()

    return Case(step)


def recompilations(device):
    model = MLP(64).to(device)
    compiled = torch.compile(lambda x: model(x).square().mean(), dynamic=False)

    def step():
        model.zero_grad()
        for size in (16, 48):
            compiled(torch.randn(size, 64, device=device)).backward()

    return Case(step)


def graph_break(device):
    model = MLP(64).to(device)

    def work(x):
        h = model.up(x).relu()
        torch._dynamo.graph_break()
        return model.down(h * 0.5).sum()

    x = torch.randn(32, 64, device=device)
    return Case(training(model, x, compiled=torch.compile(work)))


def blocks_one_by_one(device):
    model = GPT(layers=4).to(device)
    for block in model.blocks:
        block.compile()
    return Case(training(model, *tokens(device), compiled=model))


def nested_region(device):
    class Regional(GPT):
        @torch.compiler.nested_compile_region
        def around(self, block, x):
            return block(x)

    model = Regional(layers=4).to(device)
    compiled = torch.compile(model, fullgraph=True)
    return Case(training(model, *tokens(device), compiled=compiled))


class Marked(MLP):
    def forward(self, x):
        with torch.fx.traceback.annotate({"compile_with_inductor": 0}):
            return super().forward(x)


def regional(device):
    """Inductor compiles only the MLPs, each by itself; the rest of the graph runs eagerly."""
    from torch._dynamo.backends.common import aot_autograd
    from torch.fx.passes.regional_inductor import regional_inductor

    model = GPT(layers=4)
    for block in model.blocks:
        block.mlp = Marked(64)
    backend = aot_autograd(fw_compiler=regional_inductor, bw_compiler=regional_inductor)
    compiled = torch.compile(model.to(device), backend=backend, fullgraph=True)
    return Case(training(model, *tokens(device), compiled=compiled))


def after_reset(device):
    """Dynamo is reset in the middle of a process, as a notebook does it."""
    model, inputs = GPT().to(device), tokens(device)
    training(model, *inputs, compiled=torch.compile(model))()
    torch._dynamo.reset()
    return Case(training(model, *inputs, compiled=torch.compile(model)))


def cond(device):
    layer = nn.Linear(64, 64).to(device)

    def work(x):
        h = layer(x)
        h = torch.cond(h.abs().sum() > 0, lambda h: h.sin() * 1.25, lambda h: h.cos() * 2.5, (h,))
        return h.square().sum()

    x = torch.randn(64, 64, device=device)
    return Case(training(layer, x, compiled=torch.compile(work)))


def one_graph(device):
    torch.manual_seed(0)
    weight = torch.randn(64, 64, device=device)
    x = torch.randn(32, 64, device=device)

    def loss_of(weight, x):
        h = torch.tanh(x @ weight)
        return (h * 1.25).square().mean()

    @torch.compile
    def step(weight, x):
        gradient, loss = torch.func.grad_and_value(loss_of)(weight, x)
        weight.sub_(gradient * 0.125)
        return loss

    return Case(lambda: step(weight, x), phases=("forward", "backward"))


def whole_step(device):
    model = GPT(dropout=0.1).to(device)
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}

    def loss_of(weights, ids, labels):
        return torch.func.functional_call(model, weights, (ids, labels))

    @torch.compile
    def step(weights, ids, labels):
        gradients, loss = torch.func.grad_and_value(loss_of)(weights, ids, labels)
        for name, weight in weights.items():
            weight.sub_(gradients[name] * 0.125)
        return loss

    batch = tokens(device)
    phases = ("forward", "backward", "gradient_accumulation")
    return Case(lambda: step(weights, *batch), phases=phases)


@torch.no_grad
def _inferred(compiled, x):
    return compiled(x)


def while_loop(device):
    """The body runs as often as the data say, and in it a branch is chosen."""
    from torch._higher_order_ops.while_loop import while_loop as looped

    layer = nn.Linear(64, 64).to(device)

    def branch(h):
        return torch.cond(h.sum() > 0, lambda h: h.cos() * 1.25, lambda h: h.sin() * 2.5, (h,))

    def work(x):
        h = layer(x)
        turn = torch.zeros((), dtype=torch.int64, device=device)
        _, h = looped(
            lambda turn, h: turn < 5,
            lambda turn, h: (turn + 1, branch(h @ x.t() @ x) - 0.5),
            (turn, h),
        )
        return h.square().sum()

    x = torch.randn(64, 64, device=device)
    compiled = torch.compile(work)
    return Case(lambda: _inferred(compiled, x), phases=("forward",), lines=("x.t() @ x",))


def scan(device):
    """Inductor turns it into a loop, and drops what torch knew of the body's nodes."""
    from torch._higher_order_ops.scan import scan as scanned

    torch._dynamo.config.capture_scalar_outputs = True
    layer = nn.Linear(64, 64).to(device)

    def turn(h, row):
        kept = h * 1.25
        return torch.tanh(h + row), kept

    def work(x):
        last, rows = scanned(turn, layer(x[0]), x)
        return last.square().sum() + rows.sum()

    x = torch.randn(8, 64, 64, device=device)
    compiled = torch.compile(work)
    lines = ("kept = h * 1.25", "torch.tanh(h + row)")
    return Case(lambda: _inferred(compiled, x), phases=("forward",), lines=lines)


CASES = (
    dynamic_shapes,
    recompilations,
    graph_break,
    blocks_one_by_one,
    nested_region,
    regional,
    after_reset,
    cond,
    while_loop,
    scan,
    one_graph,
    whole_step,
)
