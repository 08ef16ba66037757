"""The blocks whose every value depends on one element: chains, masks, casts, in-place."""

from __future__ import annotations

from verification.oracle.draft import Draft

_UNARY = (
    "torch.sin({x} * C)",
    "{x} * C",
    "{x} + C",
    "C - {x}",
    "torch.tanh({x}) * C",
    "F.gelu({x}) + C",
    "F.silu({x} * C)",
    "torch.exp({x} * C)",
    "torch.sigmoid({x}) - C",
    "F.leaky_relu({x}, C)",
    "F.elu({x}, alpha=C)",
    "torch.clamp({x}, max=C)",
    "torch.abs({x}) ** C",
    "F.threshold({x}, C, C)",
    "torch.rsqrt({x} * {x} + C)",
    "torch.log1p({x} * {x} * C)",
)
_BINARY = (
    "torch.add({x}, {y}, alpha=C)",
    "{x} * {y} * C",
    "torch.maximum({x}, {y}) * C",
    "torch.lerp({x}, {y}, C)",
    "torch.addcmul({x}, {x}, {y}, value=C)",
    "({x} - {y}) * C",
    "torch.where({x} > {y}, {x} * C, {y})",
)


def unary(m: Draft, x: str) -> str:
    return m.line(m.some(*_UNARY).format(x=x))


def binary(m: Draft, x: str, y: str) -> str:
    return m.line(m.some(*_BINARY).format(x=x, y=y))


def chain(m: Draft, x: str) -> str:
    for _ in range(m.rng.randint(2, 5)):
        x = unary(m, x)
    return x


def multi_use(m: Draft, x: str) -> str:
    values = [x]
    for _ in range(m.rng.randint(4, 9)):
        if m.rng.random() < 0.4:
            values.append(unary(m, m.rng.choice(values)))
        else:
            values.append(binary(m, m.rng.choice(values), m.rng.choice(values)))
    return m.line(" + ".join(values[-3:]))


def masks(m: Draft, x: str) -> str:
    mask = m.line(f"{x} > C")
    a = m.line(f"torch.where({mask}, {x} * C, C)")
    b = m.line(f"{a}.masked_fill({mask}, C)")
    return m.line(f"torch.where({mask} | ({b} < C), {b}, {x} * C)")


def casts(m: Draft, x: str) -> str:
    # Arithmetic in a short type would round the constants that mark the lines.
    low = m.line(f"({x} * C).to({m.some('torch.bfloat16', 'torch.float16', 'torch.float64')})")
    back = m.line(f"({low} + {low}).float() * C")
    whole = m.line(f"({back} * C).to(torch.int32)")
    return m.line(f"{back} + {whole} * C")


def in_place(m: Draft, x: str) -> str:
    y = m.line(f"{x} * C")
    m.do(f"{y}.mul_(C)")
    m.do(f"{y}[:, {m.columns // 2}:].add_(C)")
    m.do(f"{y}[0] = {x}[0] * C")
    return m.line(f"torch.relu_({y} - C)")


def mutated_input(m: Draft, x: str) -> str:
    state = m.buffer(m.rows, m.columns)
    m.do(f"{state}.mul_(C)")
    m.do(f"{state}.add_({x}.detach() * C)")
    return m.line(f"{x} + {state} * C")


def dropout(m: Draft, x: str) -> str:
    a = m.line(f"F.dropout({x} * C, p=P)")
    return m.line(f"F.dropout({a} + C, p=P)")


def random_values(m: Draft, x: str) -> str:
    noise = m.line(f"torch.rand_like({x}) * C")
    return m.line(f"{x} + {noise} * C")


def made_values(m: Draft, x: str) -> str:
    steps = m.line(f"torch.arange({m.columns}, device={x}.device) * C")
    ones = m.line(f"torch.full(({m.rows}, 1), C, device={x}.device)")
    return m.line(f"{x} * {ones} + {steps} * C")


def foreach(m: Draft, x: str) -> str:
    w = m.weight(m.rows, m.columns)
    pair = m.line(f"torch._foreach_mul([{x}, {w}], C)")
    pair = m.line(f"torch._foreach_add({pair}, C)")
    pair = m.line(f"torch._foreach_addcmul({pair}, [{x}, {w}], [{w}, {x}], value=C)")
    return m.line(f"{pair}[0] + {pair}[1] * C")


def foreach_update(m: Draft, x: str) -> str:
    one, two = m.buffer(m.rows, m.columns), m.buffer(64, 48)
    gradients = m.line(f"[{x}.detach() * C, {two} * C]")
    m.do(f"torch._foreach_mul_([{one}, {two}], C)")
    m.do(f"torch._foreach_add_([{one}, {two}], {gradients}, alpha=C)")
    return m.line(f"{x} * C + {two}.sum()")


BLOCKS = (
    chain,
    multi_use,
    masks,
    casts,
    in_place,
    mutated_input,
    dropout,
    random_values,
    made_values,
    foreach,
    foreach_update,
)
