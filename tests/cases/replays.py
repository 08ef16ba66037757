"""Owns the cases of CUDA graphs and of streams."""

from __future__ import annotations

import contextlib

import torch

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

    return Case(step, warmup=6, phases=FULL, coverage=0.99)


def cudagraphs_autocast(device):
    model = GPT(layers=4).to(device)
    compiled = torch.compile(model, mode="reduce-overhead")
    step = training(model, *tokens(device), compiled=compiled, enabled=True)
    return Case(step, warmup=6, coverage=0.99)


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


CASES = (
    cudagraphs,
    cudagraphs_autocast,
    side_stream,
)
