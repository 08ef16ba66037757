"""The blocks that move values about: views, cat, slices, index and scatter, padding."""

from __future__ import annotations

from verification.oracle.draft import Draft


def views(m: Draft, x: str) -> str:
    a = m.line(f"({x} * C).view({m.rows}, 2, -1).transpose(1, 2)")
    b = m.line(f"({a} + C).reshape({m.columns}, {m.rows})")
    c = m.line(f"({b} * C).t()")
    return m.line(f"{x} + {c} * C")


def cat(m: Draft, x: str) -> str:
    w = m.weight(m.rows, 8)
    a = m.line(f"torch.cat([{x} * C, {w} + C, {x} - C], dim=1)")
    return m.line(f"{a}[:, 8 : {m.columns + 8}] * C")


def stack(m: Draft, x: str) -> str:
    a = m.line(f"torch.stack([{x} * C, {x} + C])")
    return m.line(f"{a}.sum(0) * C")


def slices(m: Draft, x: str) -> str:
    half = m.columns // 2
    a = m.line(f"{x}[:, ::2] * C")
    b = m.line(f"{x}[:, {half}:] + C")
    left, right = m.line(f"({a} * C).chunk(2, dim=1)[0]"), m.line(f"{b}.narrow(1, 0, {half}) * C")
    total = m.line(f"{left}.sum(1, keepdim=True) * C")
    return m.line(f"torch.cat([{a} + {right}, {b}], dim=1) + {total} * C")


def index(m: Draft, x: str) -> str:
    rows, columns = m.index(m.rows, m.rows), m.index(m.columns, m.columns)
    a = m.line(f"({x} * C)[{rows}]")
    b = m.line(f"torch.index_select({a} + C, 1, {columns})")
    return m.line(f"{b} * C")


def gather(m: Draft, x: str) -> str:
    place = m.index(m.columns, m.rows, m.columns)
    a = m.line(f"torch.gather({x} * C, 1, {place})")
    return m.line(f"{a} * C + {x}")


def scatter(m: Draft, x: str) -> str:
    place = m.index(m.columns, m.rows, m.columns)
    base = m.line(f"torch.zeros_like({x}) + C")
    how = m.some("scatter_add({b}, 1, {i}, {x} * C)", "scatter({b}, 1, {i}, {x} * C)")
    a = m.line("torch." + how.format(b=base, i=place, x=x))
    return m.line(f"{a} * C")


def index_put(m: Draft, x: str) -> str:
    rows = m.index(m.rows, m.rows)
    y = m.line(f"{x} * C")
    how = m.some(
        "{y}.index_put_(({r},), {x} * C, accumulate=True)",
        "{y}.index_add_(0, {r}, {x} * C)",
        "{y}.index_copy_(0, {r}, {x} + C)",
        "{y}[{r}] = {x} * C",
    )
    m.do(how.format(y=y, r=rows, x=x))
    return m.line(f"{y} * C")


def embedding(m: Draft, x: str) -> str:
    table, place = m.weight(50, m.columns), m.index(50, m.rows)
    rows = m.line(f"F.embedding({place}, {table} * C)")
    return m.line(f"{x} + {rows} * C")


def padding(m: Draft, x: str) -> str:
    a = m.line(f"F.pad({x} * C, (2, 2), value=C)")
    return m.line(f"{a}[:, 1:-3] * C")


def turned(m: Draft, x: str) -> str:
    a = m.line(f"torch.roll({x} * C, 3, 1)")
    b = m.line(f"torch.flip({a} + C, (0,))")
    return m.line(f"torch.tril({b} * C) + {x}")


def repeated(m: Draft, x: str) -> str:
    a = m.line(f"({x} * C).repeat(2, 1) * C")
    b = m.line(f"({a} + C)[: {m.rows}, :1].expand({m.rows}, {m.columns})")
    return m.line(f"{b} * C + {x}")


BLOCKS = (
    views,
    cat,
    stack,
    slices,
    index,
    gather,
    scatter,
    index_put,
    embedding,
    padding,
    turned,
    repeated,
)
