"""The program of the trials of the gate: a training step with five lines of known work."""

from __future__ import annotations

from pathlib import Path

STEP = """\
import fcntl, os, sys
from functools import reduce
import torch
import torch._inductor.compile_fx  # here and not under the lock, where all others would wait
import torch.nn.functional as F
from torch import nn

ROWS, WIDTH, DEVICE = {rows}, {width}, "{device}"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        h = F.gelu(self.up(self.norm(x)))
        return x + self.down(h)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(3)))
        self.wide = nn.Parameter(torch.randn(WIDTH, 4 * WIDTH) / 32)
        self.square = nn.Parameter(nn.init.orthogonal_(torch.empty(WIDTH, WIDTH)))

    def forward(self, x, rows, heads, table):
        x = self.blocks(x)
        loss = x.float().square().mean()
        loss = loss + (rows[:{product}] @ self.wide).float().square().mean()
        loss = loss + F.scaled_dot_product_attention(*heads[:, :{attention}]).float().mean()
        loss = loss + torch.softmax(table[:{reduction}], -1).square().sum()
        loss = loss + reduce(torch.mm, [self.square] * {chain}, x).float().square().mean()
        return loss


def main(model, steps):
    model = model.to(DEVICE)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(ROWS, WIDTH, device=DEVICE)
    rows = torch.randn({products}, WIDTH, device=DEVICE, dtype=torch.bfloat16)
    heads = torch.randn(3, {batch}, 8, {tokens}, 64, device=DEVICE, dtype=torch.bfloat16)
    table = torch.randn({table}, 16 * WIDTH, device=DEVICE, requires_grad=True)
    heads.requires_grad_()
    for _ in range(steps):
        batch = reduce(lambda h, _: h.cos(), range({eager}), x)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = compiled(batch, rows, heads, table)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        heads.grad = table.grad = None
    print(loss.item())


torch.manual_seed(0)
model = Model()
with open(os.environ["GATE_TRIALS_LOCK"], "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    main(model, int(sys.argv[1]))
"""
COMMON = {"rows": 8400, "width": 1024, "device": "cuda"}
COMMON |= {"products": 23232, "batch": 44, "tokens": 1024, "table": 8800}
BASE = {"product": 21120, "attention": 40, "reduction": 8000, "chain": 20, "eager": 20}
HEAD = {"product": 22176, "attention": 42, "reduction": 8400, "chain": 21, "eager": 21}
"""Slices stay slices, and the product has whole waves of tiles: 1,056 rows fill 132 processors."""
SMALL = {"rows": 168, "width": 32, "device": "cpu"}
SMALL |= {"products": 176, "batch": 44, "tokens": 16, "table": 176}
SMALL_BASE = BASE | {"product": 160, "reduction": 160}
SMALL_HEAD = HEAD | {"product": 168, "reduction": 168}
LINES = tuple(BASE)


def write_programs(work: Path, is_small: bool) -> dict[str | None, int]:
    """Write the base, and a head for each line; return the number of the line that is planted."""
    common, base, head = (SMALL, SMALL_BASE, SMALL_HEAD) if is_small else (COMMON, BASE, HEAD)
    text = STEP.format(**common, **base)
    numbers: dict[str | None, int] = {}
    for planted in (None, *LINES):
        own = STEP.format(**common, **base | ({planted: head[planted]} if planted else {}))
        path = work / "programs" / (planted or "same") / "step.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(own)
        differing = [
            n
            for n, (a, b) in enumerate(zip(text.splitlines(), own.splitlines(), strict=True), 1)
            if a != b
        ]
        assert len(differing) == bool(planted), (planted, differing)
        numbers |= {planted: differing[0]} if differing else {}
    return numbers
