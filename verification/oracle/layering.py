"""The blocks of whole layers: matmuls, convolutions, equal layers, checkpoints."""

from __future__ import annotations

from verification.oracle.differentiating import FUNCTION
from verification.oracle.draft import Draft

_LAYER = """\
class NAME(torch.nn.Module):
    def forward(self, x, down, up):
        h = F.gelu((x * C) @ down)
        h = (h + C) @ up
        return x + torch.tanh(h * C)"""


def matmul(m: Draft, x: str) -> str:
    down, up = m.weight(m.columns, 16), m.weight(16, m.columns)
    a = m.line(f"F.relu(({x} * C) @ {down} + C)")
    b = m.line(f"({a} * C) @ {up}")
    return m.line(f"{b} * C + {x}")


def linear(m: Draft, x: str) -> str:
    down, bias, up = m.weight(32, m.columns), m.weight(32), m.weight(m.columns, 32)
    a = m.line(f"F.linear({x} + C, {down}, {bias})")
    b = m.line(f"F.gelu({a} * C) * C")
    return m.line(f"F.linear({b}, {up}) * C + {x} * C")


def attention(m: Draft, x: str) -> str:
    q = m.line(f"({x} * C).view(1, {m.rows}, 2, -1).transpose(1, 2)")
    k = m.line(f"({x} + C).view(1, {m.rows}, 2, -1).transpose(1, 2)")
    v = m.line(f"({x} - C).view(1, {m.rows}, 2, -1).transpose(1, 2)")
    a = m.line(f"F.scaled_dot_product_attention({q}, {k}, {v}) * C")
    return m.line(f"{a}.transpose(1, 2).reshape({m.rows}, {m.columns}) + {x} * C")


def own_attention(m: Draft, x: str) -> str:
    key = m.weight(24, m.columns)
    scores = m.line(f"(({x} * C) @ {key}.t()) * C")
    p = m.line(f"F.dropout(torch.softmax({scores}, -1), p=P)")
    return m.line(f"({p} * C) @ ({key} + C)")


def convolution(m: Draft, x: str) -> str:
    kernel, weight, bias = m.weight(4, 1, 3, 3), m.weight(4), m.weight(4)
    mean, variance = m.buffer(4), m.buffer(4)
    image = m.line(f"({x} * C).view({m.rows}, 1, 8, -1)")
    y = m.line(f"F.conv2d({image}, {kernel}, padding=1)")
    options = f"{mean}, {variance}, {weight}, {bias}, training=True, momentum=P, eps=C"
    z = m.line(f"F.relu(F.batch_norm({y} + C, {options}) * C)")
    return m.line(f"{z}.sum(1).view({m.rows}, {m.columns}) * C")


def pooling(m: Draft, x: str) -> str:
    image = m.line(f"({x} * C).view({m.rows}, 1, 8, -1)")
    pooled = m.line(f"F.{m.some('max_pool2d', 'avg_pool2d')}({image} + C, 2)")
    y = m.line(
        f"F.interpolate({pooled} * C, scale_factor=2, mode={m.some('nearest', 'bilinear')!r})"
    )
    return m.line(f"{y}.view({m.rows}, {m.columns}) * C")


def equal_layers(m: Draft, x: str) -> str:
    layer = m.declare(_LAYER)
    downs = [m.weight(m.columns, 16) for _ in range(3)]
    ups = [m.weight(16, m.columns) for _ in range(3)]
    y = m.line(f"{x} * C")
    for down, up in zip(downs, ups, strict=True):
        m.do(f"{y} = {layer}()({y}, {down}, {up})")
    return m.line(f"{y} + C")


def loop(m: Draft, x: str) -> str:
    weights = [m.weight(m.columns) for _ in range(4)]
    helper = m.function(
        "x, w", "a = x * C + w", "b = a.sum(1, keepdim=True) * C", "return x + torch.tanh(a - b)"
    )
    for weight in weights:
        x = m.line(f"{helper}({x}, {weight})")
    return x


def checkpointed(m: Draft, x: str) -> str:
    down, up = m.weight(m.columns, 16), m.weight(16, m.columns)
    helper = m.function(
        "x, down, up",
        "a = torch.sin(x * C)",
        "b = torch.softmax((a @ down) * C, -1)",
        "return (torch.cos(b * C) @ up) * C",
    )
    y = m.line(f"checkpoint({helper}, {x}, {down}, {up}, use_reentrant=False)")
    return m.line(f"{y} + {x} * C")


def own_function(m: Draft, x: str) -> str:
    name = m.declare(FUNCTION)
    return m.line(f"{name}.apply({x} * C) * C")


def graph_break(m: Draft, x: str) -> str:
    y = m.line(f"torch.sin({x} * C)")
    m.do("torch._dynamo.graph_break()")
    return m.line(f"{y} * C")


BLOCKS = (
    matmul,
    linear,
    attention,
    own_attention,
    convolution,
    pooling,
    equal_layers,
    loop,
    checkpointed,
    own_function,
    graph_break,
)
