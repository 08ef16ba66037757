"""The blocks of a training step beside its layers: precision, optimizers, users' kernels."""

from __future__ import annotations

from verification.oracle.draft import Draft

_KERNEL = """\
@triton.jit
def NAME(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1.0, mask=at < n)"""
_ADAMW = "adamw({p}, {g}, {a}, {b}, [], {s}, foreach={how}, capturable={how}, amsgrad=False, "
_ADAMW += "beta1=P, beta2=P, lr=C, weight_decay=C, eps=C, maximize=False)"
_SGD = "sgd({p}, {g}, [None] * {n}, foreach={how}, weight_decay=C, momentum=0.0, lr=C, "
_SGD += "dampening=0.0, nesterov=False, maximize=False)"


def autocast(m: Draft, x: str) -> str:
    down, up = m.weight(m.columns, 32), m.weight(32, m.columns)
    helper = m.function(
        "x, down, up",
        "with torch.autocast(x.device.type, dtype=torch.bfloat16):",
        "    a = F.gelu((x * C) @ down) * C",
        "    b = torch.softmax(a * C, -1)",
        "    c = (b @ up) * C",
        "    return F.layer_norm(c, c.shape[-1:], eps=C) + x",
    )
    return m.line(f"{helper}({x}, {down}, {up}) * C")


def low_precision(m: Draft, x: str) -> str:
    dtype = m.some("torch.bfloat16", "torch.float16")
    down, up = m.weight(m.columns, 32), m.weight(32, m.columns)
    low = m.line(f"({x} * C).to({dtype})")
    a = m.line(f"torch.tanh({low} @ {down}.to({dtype}) * C) + C")
    b = m.line(f"F.softmax({a} * C, dim=-1) * {a}.mean()")
    c = m.line(f"({b} @ {up}.to({dtype})) * C")
    d = m.line(f"{c}.double() * C")
    return m.line(f"{d}.to(torch.float32) + {x} * C")


def optimizer(m: Draft, x: str) -> str:
    """Two groups of parameters, each updated on a line of its own."""
    how = m.some("True", "False")
    for template in m.rng.sample((_ADAMW, _ADAMW, _SGD), 2):
        size = m.rng.choice((64, 96))
        p, g, a, b = (_list([m.buffer(size, n) for n in (32, 48)]) for _ in range(4))
        steps = _list([m.buffer() for _ in range(2)])
        g = m.line(f"torch._foreach_mul({g}, C)")
        m.do(template.format(p=p, g=g, a=a, b=b, s=steps, how=how, n=2))
    return m.line(f"{x} * C + {p[1:].split(',')[0]}.mean()")


def clipping(m: Draft, x: str) -> str:
    values = [m.buffer(m.rows, 32), m.buffer(48, 16)]
    norms = m.line(f"torch.stack(torch._foreach_norm({_list(values)})) * C")
    scale = m.line(f"torch.clamp(C / ({norms}.norm() + C), max=C)")
    m.do(f"torch._foreach_mul_({_list(values)}, {scale})")
    return m.line(f"{x} * C + {values[0]}.sum()")


def rotary(m: Draft, x: str) -> str:
    half = m.columns // 2
    place = m.line(f"torch.arange({m.rows}, device={x}.device)[:, None] * C")
    angle = m.line(f"{place} * (C ** torch.arange({half}, device={x}.device))")
    turned = m.line(f"torch.cat([-{x}[:, {half}:] * C, {x}[:, :{half}]], dim=-1)")
    wide = m.line(f"torch.cat([{angle}, {angle}], dim=-1)")
    return m.line(f"{x} * torch.cos({wide} * C) + {turned} * torch.sin({wide} + C)")


def experts(m: Draft, x: str) -> str:
    gate, weights = m.weight(m.columns, 4), m.weight(4, m.columns)
    scores = m.line(f"torch.softmax(({x} * C) @ {gate}, -1) * C")
    best = m.line(f"torch.topk({scores}, 2, dim=-1)")
    chosen = m.line(f"{weights}[{best}.indices] * C")
    return m.line(f"{x} + (chosen * {best}.values[..., None] * C).sum(1)".replace("chosen", chosen))


def user_kernel(m: Draft, x: str) -> str:
    kernel = m.declare(_KERNEL)
    apply = m.function(
        "x",
        "x = x.contiguous()",
        "out = torch.empty_like(x)",
        f"{kernel}[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)",
        "return out",
    )
    a = m.line(f"{apply}(torch.sin({x}.detach() * C))")
    b = m.line(f"{apply}(torch.cos({x}.detach() + C))")
    return m.line(f"{x} + {a} * {b} * C")


def many_rows(m: Draft, x: str) -> str:
    """Reductions along both dimensions of one tensor, which a GPU does in one kernel."""
    rows, weight, bias = m.weight(32768, 1024), m.weight(1024), m.weight(1024)
    y = m.line(f"F.layer_norm({rows} * C, (1024,), {weight}, {bias}, eps=C)")
    z = m.line(f"F.gelu({y} * C).mean() * C")
    return m.line(f"{x} * C + {z}")


def _list(names: list[str]) -> str:
    return f"[{', '.join(names)}]"


BLOCKS = (autocast, low_precision, optimizer, clipping, rotary, experts)
ON_A_GPU = (user_kernel, many_rows)
