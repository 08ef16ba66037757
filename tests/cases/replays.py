"""Owns the cases of CUDA graphs and of streams."""

from __future__ import annotations

import contextlib
import os

import torch
from torch import nn

from tests.cases import FULL, Case
from tests.cases.models import GPT, MLP, tokens, training


def cudagraphs(device):
    model = GPT(dropout=0.1).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), capturable=device == "cuda")
    compiled = torch.compile(model, mode="reduce-overhead")
    update = torch.compile(optimizer.step, mode="reduce-overhead")
    one = training(model, *tokens(device), compiled=compiled, update=update)

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        one()

    return Case(step, warmup=6, phases=FULL)


def cudagraphs_autocast(device):
    model = GPT(layers=4).to(device)
    compiled = torch.compile(model, mode="reduce-overhead")
    step = training(model, *tokens(device), compiled=compiled, enabled=True)
    return Case(step, warmup=6)


def side_stream(device):
    model = MLP(64).to(device)
    compiled = torch.compile(lambda x: model(x).square().mean())
    x = torch.randn(64, 64, device=device)
    stream = torch.cuda.Stream() if device == "cuda" else None

    def step():
        model.zero_grad()
        with torch.cuda.stream(stream) if stream else contextlib.nullcontext():
            compiled(x).backward()
        torch.cuda.synchronize() if stream else None

    return Case(step)


class Broken(GPT):
    """A graph break parts it into two graphs; the second reads what the first one's pool holds."""

    def around(self, block, x):
        if block is self.blocks[1]:
            torch._dynamo.graph_break()
        return block(x)


def cudagraphs_in_parts(device):
    model = Broken(layers=3, dropout=0.1).to(device)
    compiled = torch.compile(model, mode="reduce-overhead")
    # One region runs for several blocks, and only the first call's input is copied.
    return Case(training(model, *tokens(device), compiled=compiled), warmup=6)


def partitioned(device):
    """A value that visits the CPU cuts the graph; each part is a CUDA graph of its own."""
    torch._inductor.config.graph_partition = True
    layer = nn.Linear(64, 64).to(device)

    def work(x):
        h = layer(x).relu() * 1.25
        scale = h.mean().cpu() * 0.5
        return (h * scale.to(h.device)).tanh().sum()

    compiled = torch.compile(work, mode="reduce-overhead")
    x = torch.randn(256, 64, device=device)
    step = training(layer, x, compiled=compiled)
    return Case(step, warmup=6, lines=("relu", "tanh"))


def cudagraphs_seen_late(device):
    """No call was seen before the replays: runs of library calls may stay open, and say so."""
    os.environ["PROFILER_EXT_LEARN"] = "0"
    model = GPT(layers=3, width=128).to(device)
    compiled = torch.compile(model, mode="reduce-overhead")
    return Case(
        training(model, *tokens(device), compiled=compiled), warmup=6, coverage=0.0, late=True
    )


CASES = (
    cudagraphs,
    cudagraphs_autocast,
    cudagraphs_in_parts,
    cudagraphs_seen_late,
    partitioned,
    side_stream,
)
