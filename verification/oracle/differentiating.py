"""The blocks that take a gradient themselves: whole steps in one graph."""

from __future__ import annotations

from verification.oracle.draft import Draft

FUNCTION = """\
class NAME(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * C
        ctx.save_for_backward(y)
        return torch.sin(y) + C

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        scaled = grad * C
        return scaled * torch.cos(y * C)"""


def own_gradient(m: Draft, x: str) -> str:
    helper = m.function("t", "a = torch.sin(t * C)", "return (a * a * C).sum()")
    y = m.line(f"torch.func.grad({helper})({x})")
    return m.line(f"{y} * C + {x}")


def own_step(m: Draft, x: str) -> str:
    """A loss with products, sums over rows and several uses, its gradient, and an update."""
    down, up = m.weight(m.columns, 16), m.weight(16, m.columns)
    loss = m.function(
        "down, up, x",
        "h = F.gelu((x * C) @ down)",
        "h = F.layer_norm(h * C, (16,)) + h * C",
        "p = torch.softmax((h @ up) * C, -1)",
        "return ((p + C).log() * C).sum()",
    )
    both = m.line(f"torch.func.grad({loss}, argnums=(0, 1))({down}, {up}, {x})")
    a = m.line(f"{down} - {both}[0] * C")
    b = m.line(f"{up} - {both}[1] * C")
    return m.line(f"{x} + ({x} @ {a} @ {b}) * C")


def own_second_gradient(m: Draft, x: str) -> str:
    inner = m.function("t", "a = torch.sin(t * C)", "b = torch.exp(-t * C)", "return (a * b).sum()")
    outer = m.function("t", f"g = torch.func.grad({inner})(t)", "return torch.cos(g * C).sum()")
    y = m.line(f"torch.func.grad({outer})({x})")
    return m.line(f"{y} * C + {x}")


def own_gradient_of_function(m: Draft, x: str) -> str:
    name = m.declare(FUNCTION)
    helper = m.function("t", f"a = {name}.apply(t * C)", "return (torch.tanh(a * C) * C).sum()")
    y = m.line(f"torch.func.grad({helper})({x})")
    return m.line(f"{y} * C + {x}")


def own_gradient_of_samples(m: Draft, x: str) -> str:
    weight = m.weight(m.columns)
    helper = m.function("w, t", "a = torch.tanh(t * w * C)", "return (a * C).square().sum()")
    y = m.line(f"torch.func.vmap(torch.func.grad({helper}), (None, 0))({weight}, {x})")
    return m.line(f"{y} * C + {x}")


BLOCKS = (
    own_gradient,
    own_step,
    own_second_gradient,
    own_gradient_of_function,
    own_gradient_of_samples,
)
