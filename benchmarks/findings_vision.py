"""Tries the rules of findings on models of torchvision, to which none of them was fitted.

    python -m benchmarks.findings_vision [--only RULE ...] [--tiny] [--rounds 5] [--out DIR]
    python -m benchmarks.findings_vision --quiet [MODEL ...] [--tiny] [--out DIR]

Prints a table in Markdown, and writes the sessions and what it measured into DIR. With ``--quiet``
it prints what the rule of layers unlike their siblings says of CNNs that have no such layer, and
ends with 1 where it says anything.
"""

from __future__ import annotations

import argparse
import gc
import io
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torchvision
from PIL import Image
from torch import nn
from torch.nn import functional

from benchmarks.captured import captured
from benchmarks.cases import Case, Pair, Sizes
from benchmarks.findings import add_options, enable, sizes_of, tell
from benchmarks.models import channels_last
from benchmarks.steps import Step, recorded

QUIET = (
    *("vgg16_bn", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "efficientnet_v2_s"),
    *("densenet121", "resnet50", "resnet152", "convnext_tiny", "regnet_y_800mf"),
    *("shufflenet_v2_x1_0", "swin_t"),
)
Batches = Callable[[], tuple[torch.Tensor, torch.Tensor]]


class Images(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Photographs, as JPEG, that are decoded, cut, turned and normalised."""

    def __init__(self, side: int) -> None:
        self.files = [_jpeg(seed) for seed in range(16)]
        self.change = torchvision.transforms.Compose(
            [
                torchvision.transforms.RandomResizedCrop(side),
                torchvision.transforms.RandomHorizontalFlip(),
                torchvision.transforms.ToTensor(),
                torchvision.transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ]
        )

    def __len__(self) -> int:
        """As many as anybody asks for."""
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """Return an image and its class."""
        image = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        return self.change(image), index % 1000


def _jpeg(seed: int) -> bytes:
    """Return a file of a blurred image, which is as large as a photograph is."""
    noise = torch.rand(1, 3, 48, 64, generator=torch.Generator().manual_seed(seed))
    pixels = functional.interpolate(noise, (375, 500), mode="bicubic").clamp(0, 1)[0]
    written = io.BytesIO()
    torchvision.transforms.functional.to_pil_image(pixels).save(written, "JPEG")
    return written.getvalue()


def unlike_siblings(sizes: Sizes, name: str, block: str, count: int) -> Pair:
    """A CNN in bfloat16, one block in float32; all in bfloat16."""
    dtype = torch.float32 if sizes.is_tiny else torch.bfloat16
    batches = _on_device(sizes, count, dtype)

    def made(is_wide: bool) -> Step:
        model = _model(sizes, name).to(dtype)
        if is_wide:
            own = model.get_submodule(block).float()
            own.register_forward_pre_hook(lambda _, given: (given[0].float(),))
            own.register_forward_hook(lambda _, __, result: result.to(dtype))
        return _step(model, batches)

    return Pair(made(is_wide=True), made(is_wide=False))


def synchronisation(sizes: Sizes, name: str) -> Pair:
    """The loss and the hits are read in each step; they are added up on the device."""
    batches = _on_device(sizes, 96)

    def made(is_read: bool) -> Step:
        model = _model(sizes, name)
        sums = torch.zeros(2, device=sizes.device)
        read: list[tuple[float, float]] = []

        def note(result: torch.Tensor, wanted: torch.Tensor, loss: torch.Tensor) -> None:
            hits = (result.argmax(1) == wanted).float().mean()
            if is_read:
                read.append((loss.item(), hits.item()))
            else:
                sums.add_(torch.stack([loss.detach(), hits]))

        return _step(model, batches, note=note)

    return Pair(made(is_read=True), made(is_read=False))


def launch_bound(sizes: Sizes, name: str) -> Pair:
    """Few images, eager; the model under CUDA graphs."""
    batches = _on_device(sizes, 8)

    def made(mode: str | None) -> Step:
        model = _model(sizes, name)
        return _step(model, batches, mode=mode)

    return Pair(made(None), made("reduce-overhead"))


def still_launched(sizes: Sizes, name: str) -> Pair:
    """The model in CUDA graphs, loss and optimizer launched; all in one CUDA graph."""
    batches = _on_device(sizes, 8)

    def made(mode: str) -> Step:
        return _step(_model(sizes, name), batches, mode=mode)

    return Pair(made("reduce-overhead"), captured(made("default")))


def data_loader(sizes: Sizes) -> Pair:
    """Photographs that the training loop decodes; that workers decode."""
    batch, side, most = (2, 32, 1) if sizes.is_tiny else (32, 224, 12)
    model = _model(sizes, "resnet18")

    def made(count: int) -> Step:
        loader = torch.utils.data.DataLoader(
            Images(side), batch, num_workers=count, pin_memory=sizes.device == "cuda"
        )
        loaded = iter(loader)

        def batches() -> tuple[torch.Tensor, torch.Tensor]:
            images, wanted = next(loaded)
            moved = images.to(sizes.device, non_blocking=True)
            wanted = wanted.to(sizes.device, non_blocking=True)
            return moved.contiguous(memory_format=torch.channels_last), wanted

        return _step(model, batches)

    return Pair(made(0), made(most))


def _model(sizes: Sizes, name: str) -> nn.Module:
    torch.manual_seed(0)
    return channels_last(torchvision.models.get_model(name).to(sizes.device))


def _on_device(sizes: Sizes, count: int, dtype: torch.dtype = torch.float32) -> Batches:
    count, side = (2 if sizes.is_tiny else count), 224
    images = torch.randn(count, 3, side, side, device=sizes.device, dtype=dtype)
    wanted = torch.randint(1000, (count,), device=sizes.device)
    return lambda: (images.contiguous(memory_format=torch.channels_last), wanted)


def _step(
    model: nn.Module,
    batches: Batches,
    *,
    note: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None] | None = None,
    mode: str | None = None,
) -> Step:
    """Return a step under autocast, as training scripts of images have it."""
    device = next(model.parameters()).device.type
    run = model if mode is None else torch.compile(model, mode=mode)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    def step() -> None:
        images, wanted = batches()
        is_mixed = device == "cuda" and images.dtype is torch.float32
        with torch.autocast(device, torch.bfloat16, enabled=is_mixed):
            result = run(images)
            loss = functional.cross_entropy(result.float(), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if note is not None:
            note(result.detach(), wanted, loss)

    return step


SIBLINGS = (
    ("ConvNeXt-T", "a block of 9", "convnext_tiny", "features.5.4"),
    ("ResNet-50", "a block of 6", "resnet50", "layer3.3"),
)
CASES = (
    *(
        Case(
            "unlike_siblings",
            f"{model}, {count} images, {words} in float32; none",
            partial(unlike_siblings, name=name, block=block, count=count),
        )
        for model, words, name, block in SIBLINGS
        for count in (256, 64)
    ),
    Case(
        "synchronisation",
        "ResNet-50, loss and hits read; added up",
        partial(synchronisation, name="resnet50"),
    ),
    Case(
        "synchronisation",
        "ViT-B/16, loss and hits read; added up",
        partial(synchronisation, name="vit_b_16"),
    ),
    Case("data_loader", "ResNet-18, JPEGs, no workers; 12", data_loader),
    Case(
        "launch_bound",
        "ViT-B/16, 8 images, eager; `reduce-overhead`",
        partial(launch_bound, name="vit_b_16"),
    ),
    Case(
        "launch_bound",
        "ViT-B/16, 8 images, `reduce-overhead`; the whole step in one CUDA graph",
        partial(still_launched, name="vit_b_16"),
    ),
    Case(
        "launch_bound",
        "ResNet-18, 8 images, `reduce-overhead`; the whole step in one CUDA graph",
        partial(still_launched, name="resnet18"),
    ),
)


def quiet(name: str, sizes: Sizes, out: Path | None) -> list[str]:
    """Return what the rule of siblings says of a model, whose session is kept in a folder."""
    step = _step(_model(sizes, name), _on_device(sizes, 64))
    for _ in range(3):
        step()
    session = recorded(step, 2)
    if out is not None:
        session.save(out / name)
    gc.collect()
    return [
        each.summary for each in session.recommendations.ranked if each.rule == "unlike_siblings"
    ]


def main() -> int:
    """Try what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser, rounds=5)
    parser.add_argument("--quiet", nargs="*", metavar="MODEL")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    enable()
    if options.quiet is None:
        return tell(CASES, options)
    sizes = sizes_of(options)
    findings_by_program = {name: quiet(name, sizes, options.out) for name in options.quiet or QUIET}
    for name, words in findings_by_program.items():
        print(f"{name}: {'; '.join(words) or 'nothing'}", flush=True)
    return 1 if any(findings_by_program.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
