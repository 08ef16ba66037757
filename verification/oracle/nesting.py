"""The blocks that carry graphs of their own: branches, regions, a ``score_mod``."""

from __future__ import annotations

from verification.oracle.draft import Draft


def branches(m: Draft, x: str) -> str:
    yes = m.function("x", "y = torch.sin(x * C)", "return y + y.sum(1, keepdim=True) * C")
    no = m.function("x", "return torch.cos(x + C) * C")
    flag = m.line(f"{x}.sum() * C > C")
    y = m.line(f"torch.cond({flag}, {yes}, {no}, ({x}.detach(),))")
    return m.line(f"{x} + {y} * C")


def regions(m: Draft, x: str) -> str:
    helper = m.function(
        "x, w",
        "a = torch.tanh(x * C) + w",
        "b = a.mean(1, keepdim=True) * C",
        "return x - torch.sin(a * b) * C",
        decorator="torch.compiler.nested_compile_region",
    )
    for _ in range(3):
        x = m.line(f"{helper}({x}, {m.weight(m.columns)})")
    return m.line(f"{x} * C")


def selective_checkpoint(m: Draft, x: str) -> str:
    down, up = m.weight(m.columns, 16), m.weight(16, m.columns)
    helper = m.function(
        "x, down, up",
        "a = F.gelu(x * C)",
        "b = torch.tanh((a @ down) * C)",
        "return torch.sigmoid((b @ up) * C) + C",
    )
    kept = "functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])"
    options = f"use_reentrant=False, context_fn={kept}"
    y = m.line(f"checkpoint({helper}, {x}, {down}, {up}, {options})")
    return m.line(f"{y} + {x} * C")


def flex_attention(m: Draft, x: str) -> str:
    bias = m.buffer(m.rows)
    score = m.function(
        "score, batch, head, q, k, bias",
        "near = score * C + (q - k) * C",
        "return near + bias[k] * C",
    )
    mod = m.line(f"lambda s, b, h, q, k: {score}(s, b, h, q, k, {bias})")
    heads = m.columns // 32
    q, k, v = (
        m.line(f"({x} {how} C).view(1, {m.rows}, {heads}, 32).transpose(1, 2)") for how in "*+-"
    )
    y = m.line(f"attention({q}, {k}, {v}, score_mod={mod}) * C")
    return m.line(f"{y}.transpose(1, 2).reshape({m.rows}, {m.columns}) + {x} * C")


BLOCKS = (branches, regions, selective_checkpoint)
ON_A_GPU = (flex_attention,)
