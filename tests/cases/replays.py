"""The cases of CUDA graphs and of streams."""

from __future__ import annotations

import contextlib
import itertools
import os

import torch
import torch.nn.functional as F
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


class Stage(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.conv_1 = nn.Conv2d(before, after, 3, padding="same", bias=False)
        self.norm_1 = nn.BatchNorm2d(after)
        self.conv_2 = nn.Conv2d(after, after, 3, padding="same", bias=False)
        self.norm_2 = nn.BatchNorm2d(after)

    def forward(self, x):
        x = F.gelu(self.norm_1(F.max_pool2d(self.conv_1(x), 2)))
        return F.gelu(self.norm_2(self.conv_2(x)))


class SpeedRun(nn.Module):
    """The shape of the nets that are trained on CIFAR for speed: half precision, norms in float."""

    def __init__(self, widths=(24, 64, 256)):
        super().__init__()
        self.whiten = nn.Conv2d(3, widths[0], 2)
        self.stages = nn.Sequential(*(Stage(*widths[at : at + 2]) for at in range(len(widths) - 1)))
        self.head = nn.Linear(widths[-1], 10, bias=False)
        self.half()
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.float()

    def forward(self, images, labels):
        x = self.stages(F.gelu(self.whiten(images)))
        return F.cross_entropy(self.head(x.amax((2, 3))).float(), labels)


def cudagraphs_cnn(device):
    """Each convolution launches what its library finds fastest here, with memsets before it."""
    torch.backends.cudnn.benchmark = True
    torch._inductor.config.max_autotune_conv_backends = "ATEN"
    torch._inductor.config.max_autotune_gemm_backends = "ATEN"
    model = SpeedRun().to(device, memory_format=torch.channels_last)
    images = torch.randn(512, 3, 32, 32, device=device, dtype=torch.half)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(10, (512,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    compiled = torch.compile(model, mode="max-autotune")
    step = training(model, images, labels, compiled=compiled, optimizer=optimizer)
    return Case(step, warmup=6, phases=FULL)


def cudagraphs_resnet(device):
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=32, hidden_sizes=[32, 64], depths=[1, 2], layer_type="basic", num_labels=10
    )
    model = ResNetForImageClassification(config).to(device).train()
    compiled = torch.compile(model, mode="reduce-overhead")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images = torch.randn(32, 3, 64, 64, device=device)
    labels = torch.randint(10, (32,), device=device)

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        compiled(pixel_values=images, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return Case(step, warmup=6, phases=FULL, coverage=0.95)


def cudagraphs_sizes(device):
    """Each length has a CUDA graph of its own, and library kernels of its own in it."""
    model = GPT(layers=3, width=128).to(device)
    compiled = torch.compile(model, mode="reduce-overhead", dynamic=True)
    lengths = itertools.cycle([24, 48, 64])
    batches = {length: tokens(device, length=length) for length in (24, 48, 64)}

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        model.zero_grad()
        compiled(*batches[next(lengths)]).backward()

    return Case(step, warmup=18)


CASES = (
    cudagraphs,
    cudagraphs_autocast,
    cudagraphs_in_parts,
    cudagraphs_seen_late,
    cudagraphs_cnn,
    cudagraphs_resnet,
    cudagraphs_sizes,
    partitioned,
    side_stream,
)
