"""Tries the rules of findings on public programs, to which none of them was fitted.

What is trained is nanoGPT's ``model.py`` and models of pytorch-cifar, taken from where you have
them; the steps are those of their ``train.py`` and ``main.py``.

    python -m benchmarks.findings_public --nanogpt DIR --cifar DIR [--only RULE ...]
        [--tiny] [--rounds 5] [--out DIR]

Prints a table in Markdown, and writes the sessions and what it measured into DIR.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from benchmarks.cases import Case, Pair, Sizes, fp32_and_tf32
from benchmarks.findings import add_options, enable, tell
from benchmarks.models import channels_last
from benchmarks.steps import Step

Made = Callable[[], nn.Module]
Batch = tuple[torch.Tensor, torch.Tensor]
Images = Callable[[], Batch]


def fp32_matmul(nanogpt: ModuleType, sizes: Sizes) -> Pair:
    """GPT-2 in float32 as it is; the same with TF32."""
    return fp32_and_tf32(_gpt_step(nanogpt, sizes, blocks=12, width=768, batch=8, length=1024))


def dtype_conversion(nanogpt: ModuleType, sizes: Sizes) -> Pair:
    """GPT-2 under autocast; its parameters in bfloat16."""
    made = partial(_gpt_step, nanogpt, sizes, blocks=12, width=768, batch=2, length=1024)
    return Pair(made(is_autocast=True), made(dtype=torch.bfloat16))


def synchronisation(nanogpt: ModuleType, sizes: Sizes) -> Pair:
    """The small GPT of characters, compiled, whose loss is logged in each step; in none."""
    made = partial(_gpt_step, nanogpt, sizes, blocks=6, width=384, batch=64, length=256)
    return Pair(
        made(is_autocast=True, compiles=True, is_logged=True),
        made(is_autocast=True, compiles=True),
    )


def launch_bound(cifar: Made, sizes: Sizes) -> Pair:
    """ResNet-18 on 32 images, eager; with CUDA graphs."""
    images = _on_device(sizes, 32)
    return Pair(
        _cifar_step(cifar, sizes, images),
        _cifar_step(cifar, sizes, images, mode="reduce-overhead"),
    )


def layout_conversion(cifar: Made, sizes: Sizes) -> Pair:
    """A CNN on 1024 images, the channels first; last."""
    images = _on_device(sizes, 1024)
    return Pair(
        _cifar_step(cifar, sizes, images),
        _cifar_step(cifar, sizes, images, is_last=True),
    )


def pageable_copy(cifar: Made, sizes: Sizes) -> Pair:
    """ResNet-18 on 2048 images from pageable memory; from pinned memory."""
    count = 8 if sizes.is_tiny else 2048
    inputs, targets = torch.randn(count, 3, 32, 32), torch.randint(10, (count,))

    def moved(is_pinned: bool) -> Images:
        pinned = is_pinned and sizes.device == "cuda"
        both = [each.pin_memory() if pinned else each for each in (inputs, targets)]
        return lambda: (
            both[0].to(sizes.device, non_blocking=pinned),
            both[1].to(sizes.device, non_blocking=pinned),
        )

    model = _model(cifar, sizes)
    return Pair(
        _cifar_step(cifar, sizes, moved(is_pinned=False), model=model, is_last=True),
        _cifar_step(cifar, sizes, moved(is_pinned=True), model=model, is_last=True),
    )


def _gpt_step(
    nanogpt: ModuleType,
    sizes: Sizes,
    *,
    blocks: int,
    width: int,
    batch: int,
    length: int,
    dtype: torch.dtype = torch.float32,
    is_autocast: bool = False,
    compiles: bool = False,
    is_logged: bool = False,
) -> Step:
    """Return a step as that of ``train.py``: the next batch is made while the forward runs."""
    if sizes.is_tiny:
        blocks, width, batch, length = 2, 64, 2, 16
    vocabulary = 512 if sizes.is_tiny else 50304
    shape = {"block_size": length, "vocab_size": vocabulary, "n_layer": blocks, "bias": False}
    config = nanogpt.GPTConfig(**shape, n_head=width // 64, n_embd=width)
    model = nanogpt.GPT(config).to(sizes.device, dtype)
    optimizer = model.configure_optimizers(0.1, 6e-4, (0.9, 0.95), sizes.device)
    run = torch.compile(model) if compiles else model
    batched = partial(_batch, torch.randint(vocabulary, (1 << 20,)), sizes, batch, length)
    given = [batched()]
    losses: list[float] = []

    def step() -> None:
        with _autocast(sizes, is_autocast):
            _, loss = run(*given.pop())
        given.append(batched())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if is_logged:
            losses.append(loss.item())

    return step


def _batch(tokens: torch.Tensor, sizes: Sizes, batch: int, length: int) -> Batch:
    """Return tokens from random places and those that follow, by way of pinned memory."""
    starts = torch.randint(len(tokens) - length - 1, (batch,)).tolist()
    x = torch.stack([tokens[at : at + length] for at in starts])
    y = torch.stack([tokens[at + 1 : at + 1 + length] for at in starts])
    if sizes.device == "cuda":
        x, y = x.pin_memory(), y.pin_memory()
    return x.to(sizes.device, non_blocking=True), y.to(sizes.device, non_blocking=True)


def _autocast(sizes: Sizes, is_on: bool) -> contextlib.AbstractContextManager[Any]:
    return torch.autocast(sizes.device, torch.bfloat16, enabled=is_on)


def _model(cifar: Made, sizes: Sizes, *, is_last: bool = True) -> nn.Module:
    model = cifar().to(sizes.device)
    return channels_last(model) if is_last else model


def _on_device(sizes: Sizes, count: int) -> Images:
    count = 8 if sizes.is_tiny else count
    inputs = torch.randn(count, 3, 32, 32, device=sizes.device)
    targets = torch.randint(10, (count,), device=sizes.device)
    return lambda: (inputs, targets)


def _cifar_step(
    cifar: Made,
    sizes: Sizes,
    images: Images,
    *,
    model: nn.Module | None = None,
    is_last: bool = False,
    mode: str | None = None,
) -> Step:
    """Return a step as that of ``main.py``, under autocast and without its progress bar."""
    torch.backends.cudnn.benchmark = True
    net = _model(cifar, sizes, is_last=is_last) if model is None else model
    run = net if mode is None else torch.compile(net, mode=mode)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)

    def step() -> None:
        inputs, targets = images()
        if is_last:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad()
        with _autocast(sizes, True):
            loss = nn.functional.cross_entropy(run(inputs), targets)
        loss.backward()
        optimizer.step()

    return step


def _module(path: Path) -> ModuleType:
    """Return a file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _cases(nanogpt: Path, cifar: Path) -> tuple[Case, ...]:
    gpt, names = _module(nanogpt / "model.py"), ("resnet", "vgg", "mobilenetv2")
    resnet, vgg, mobile = (_module(cifar / f"{name}.py") for name in names)
    small, plain = resnet.ResNet18, partial(vgg.VGG, "VGG16")
    rows: tuple[tuple[str, str, Callable[[Sizes], Pair]], ...] = (
        ("fp32_matmul", "nanoGPT in float32; TF32", partial(fp32_matmul, gpt)),
        ("layout_conversion", "ResNet-18, 1024 images; last", partial(layout_conversion, small)),
        ("layout_conversion", "VGG-16, 1024 images; last", partial(layout_conversion, plain)),
        (
            "layout_conversion",
            "MobileNetV2, 1024 images; last",
            partial(layout_conversion, mobile.MobileNetV2),
        ),
        (
            "pageable_copy",
            "ResNet-18, 2048 images, pageable; pinned",
            partial(pageable_copy, small),
        ),
        ("pageable_copy", "VGG-16, 2048 images, pageable; pinned", partial(pageable_copy, plain)),
        (
            "launch_bound",
            "ResNet-18, 32 images, eager; `reduce-overhead`",
            partial(launch_bound, small),
        ),
        ("dtype_conversion", "nanoGPT, autocast; bfloat16", partial(dtype_conversion, gpt)),
        (
            "synchronisation",
            "nanoGPT of characters, `loss.item()`; none",
            partial(synchronisation, gpt),
        ),
    )
    return tuple(Case(*row) for row in rows)


def main() -> int:
    """Try all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nanogpt", type=Path, required=True, help="the folder of its model.py")
    parser.add_argument("--cifar", type=Path, required=True, help="its folder models")
    add_options(parser, rounds=5)
    options = parser.parse_args()
    enable()
    return tell(_cases(options.nanogpt, options.cifar), options)


if __name__ == "__main__":
    sys.exit(main())
