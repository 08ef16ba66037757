"""Compiles what breaks, is compiled again, is skipped; prints what was recorded of it as JSON."""

from __future__ import annotations

import json
import sys
import time

import torch

import profiler_ext
from profiler_ext.profiling import switch

profiler_ext.enable(strict=True)
torch._dynamo.config.recompile_limit = 3
compiled = torch.compile(backend="eager")


def printing(x):
    y = x.sin()
    print("a side effect", file=sys.stderr)
    return y.cos()


@compiled
def prints(x):
    return printing(x) + printing(x)


@compiled
def branches(x, flag=True, scale=1):
    y = x * scale
    if flag:
        y = y + 1
    if y.sum() > 0:
        return y.cos()
    return y.tanh()


@compiled
def breaks_in_a_loop(x):
    for _ in range(2):
        x = x + 1
        torch._dynamo.graph_break()
    return x


@compiled
def breaks_in_a_try(x):
    try:
        x = x.sin()
        torch._dynamo.graph_break()
        return x.cos()
    finally:
        x = x + 1


@compiled
def takes_text(x, text):
    return x + len(text)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        hidden = self.layer(x)
        return hidden * float(hidden.mean().item())


prints(torch.ones(4))
branches(torch.ones(4))
branches(torch.ones(5))
branches(torch.ones(5), flag=False)
branches(torch.ones(5), scale=2)
branches(torch.ones(5, requires_grad=True))
breaks_in_a_loop(torch.ones(3))
breaks_in_a_try(torch.ones(3))
for text in "a", "b", "c", "d", "e", "f":
    takes_text(torch.ones(2), text)
model = compiled(Model())
for _ in range(3):
    model(torch.ones(2, 4))

capture = switch.current()
assert capture is not None
compiles = capture.compiles_since(time.time_ns())
print(
    json.dumps(
        {
            "breaks": [
                (each.compile_id, b.stack[-1].file, b.stack[-1].line, b.reason)
                for each in compiles
                for b in each.breaks
            ],
            "recompiles": [
                {
                    "id": each.compile_id,
                    "function": each.function,
                    "place": f"{each.file}:{each.line}",
                    "guards": [
                        (r.compile_id, r.guard, [(f.file, f.line) for f in r.stack])
                        for r in each.recompiles
                    ],
                }
                for each in compiles
                if each.recompiles
            ],
            "failures": [(each.function, each.failure.type) for each in compiles if each.failure],
            "gaps": [gap.detail for gap in capture.all_gaps],
        }
    )
)
