"""The blocks that reduce, normalise, scan and search."""

from __future__ import annotations

from verification.oracle.draft import Draft


def reduction(m: Draft, x: str) -> str:
    name = m.some("sum", "mean", "amax", "var", "std", "prod", "norm", "logsumexp")
    dim = m.some("0", "1", "(0, 1)") if name not in ("prod",) else m.some("0", "1")
    total = m.line(f"({x} * C).{name}(dim={dim}, keepdim=True)")
    return m.line(f"{x} + {total} * C")


def full_reduction(m: Draft, x: str) -> str:
    total = m.line(f"({x} + C).{m.some('sum', 'mean', 'max', 'std')}()")
    scaled = m.line(f"{total} * C")
    return m.line(f"{x} * C - {scaled}")


def two_reductions(m: Draft, x: str) -> str:
    rows = m.line(f"({x} * C).sum(1, keepdim=True)")
    columns = m.line(f"({x} + C).mean(0, keepdim=True)")
    return m.line(f"{x} * {rows} + {columns} * C")


def softmax(m: Draft, x: str) -> str:
    name = m.some("softmax", "log_softmax")
    y = m.line(f"F.{name}({x} * C, dim={m.some('0', '1')})")
    return m.line(f"{y} * C")


def own_softmax(m: Draft, x: str) -> str:
    top = m.line(f"{x} - {x}.amax(1, keepdim=True) * C")
    e = m.line(f"torch.exp({top} * C)")
    return m.line(f"{e} / ({e}.sum(1, keepdim=True) + C)")


def layer_norm(m: Draft, x: str) -> str:
    weight, bias = m.weight(m.columns), m.weight(m.columns)
    a = m.line(f"{x} + C")
    y = m.line(f"F.layer_norm({a}, ({m.columns},), {weight}, {bias}, eps=C)")
    return m.line(f"{y} * C")


def rms_norm(m: Draft, x: str) -> str:
    weight = m.weight(m.columns)
    scale = m.line(f"torch.rsqrt(({x} * {x} * C).mean(-1, keepdim=True) + C)")
    return m.line(f"{x} * {scale} * ({weight} + C)")


def group_norm(m: Draft, x: str) -> str:
    weight, bias = m.weight(8), m.weight(8)
    image = m.line(f"({x} * C).view({m.rows}, 8, -1)")
    y = m.line(f"F.group_norm({image}, 4, {weight}, {bias}, eps=C)")
    return m.line(f"{y}.view({m.rows}, {m.columns}) + C")


def loss(m: Draft, x: str) -> str:
    target = m.index(m.columns, m.rows)
    y = m.line(f"F.cross_entropy({x} * C, {target}, label_smoothing=P)")
    z = m.line(f"F.mse_loss({x} + C, {x}.detach() * C)")
    return m.line(f"{x} * ({y} * C + {z} * C)")


def scan(m: Draft, x: str) -> str:
    name = m.some("cumsum", "cumprod", "logcumsumexp")
    y = m.line(f"torch.{name}({x} * C, dim={m.some('0', '1')})")
    return m.line(f"{y} * C + {x}")


def extremum(m: Draft, x: str) -> str:
    dim = m.some("0", "1")
    both = m.line(f"({x} * C).{m.some('max', 'min')}(dim={dim}, keepdim=True)")
    values = m.line(f"{both}.values * C")
    place = m.line(f"{both}.indices * C")
    return m.line(f"{x} + {values} + {place}")


def argument(m: Draft, x: str) -> str:
    place = m.line(f"torch.{m.some('argmax', 'argmin')}({x} * C, dim=1, keepdim=True)")
    return m.line(f"{x} + torch.gather({x} * C, 1, {place}) * C")


def sort(m: Draft, x: str) -> str:
    y = m.line(f"torch.sort({x} * C, dim=1).values")
    best = m.line(f"torch.topk({y} + C, 2, dim=1).values")
    return m.line(f"{y} * C + {best}.sum(1, keepdim=True) * C")


BLOCKS = (
    reduction,
    full_reduction,
    two_reductions,
    softmax,
    own_softmax,
    layer_norm,
    rms_norm,
    group_norm,
    loss,
    scan,
    extremum,
    argument,
    sort,
)
