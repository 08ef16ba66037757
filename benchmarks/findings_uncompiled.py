"""Tries the rules of steps that nothing compiles on models of transformers and torchvision.

    python -m benchmarks.findings_uncompiled [--models NAME ...] [--tiny] [--rounds 3] [--out DIR]

Each is trained in bfloat16, as it is and compiled with its loss: at a size that fills the device,
and at one that does not, where CUDA graphs are what launches it.
Prints a table in Markdown, and writes the sessions and what it measured into DIR.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.cases import Case, Pair, Sizes, training
from benchmarks.findings import add_options, enable, tell
from benchmarks.flaws_eager import Trained, cross_entropy
from benchmarks.models import GPT, channels_last
from benchmarks.steps import Step

Made = Callable[[Sizes], tuple[nn.Module, tuple[Any, ...]]]


class Labelled(nn.Module):
    """A model of transformers that is asked for its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        loss: torch.Tensor = self.model(input_ids=ids, labels=ids).loss
        return loss


def gpt(sizes: Sizes) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return the GPT of the other trials with its loss, and its tokens."""
    ids = _ids(sizes, 16, 512, 50304)
    return Trained(GPT(max(sizes.width, 64), sizes.layers), cross_entropy), (ids, ids)


def language(
    sizes: Sizes, kind: str, *, batch: int, length: int, **other: Any
) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return a language model of transformers, 12 layers of 768, and its tokens."""
    import transformers

    width, layers = (64, 2) if sizes.is_tiny else (768, 12)
    config = transformers.AutoConfig.for_model(
        kind,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        head_dim=64,
        intermediate_size=4 * width,
        **other,
    )
    is_masked = kind == "bert"
    auto = transformers.AutoModelForMaskedLM if is_masked else transformers.AutoModelForCausalLM
    return Labelled(auto.from_config(config)), (_ids(sizes, batch, length, 30000),)


def vision(sizes: Sizes, name: str, count: int) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return a model of torchvision with its loss, and images of the usual size."""
    import torchvision

    count = 2 if sizes.is_tiny else count
    images = torch.randn(count, 3, 224, 224, device=sizes.device, dtype=torch.bfloat16)
    wanted = torch.randint(1000, (count,), device=sizes.device)
    model = channels_last(torchvision.models.get_model(name))
    images = images.contiguous(memory_format=torch.channels_last)
    return Trained(model, _of_images), (images, wanted)


def _of_images(result: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(result.float(), wanted)


def _ids(sizes: Sizes, batch: int, length: int, words: int) -> torch.Tensor:
    batch, length = (2, 32) if sizes.is_tiny else (batch, length)
    return torch.randint(words, (batch, length), device=sizes.device)


def compiling(sizes: Sizes, made: Made, mode: str | None = None) -> Pair:
    """The model and its loss as they are; compiled."""

    def step(is_compiled: bool) -> Step:
        torch.manual_seed(0)
        model, given = made(sizes)
        model = model.to(sizes.device, torch.bfloat16)
        run = torch.compile(model, mode=mode) if is_compiled else model
        return training(model, *given, forward=run)

    return Pair(step(is_compiled=False), step(is_compiled=True))


FILLING: dict[str, tuple[str, Made]] = {
    "gpt": ("GPT, 16 x 512 tokens", gpt),
    "llama": ("Llama, 16 x 512 tokens", partial(language, kind="llama", batch=16, length=512)),
    "bert": ("BERT, 32 x 256 tokens", partial(language, kind="bert", batch=32, length=256)),
    "qwen3": ("Qwen3, 16 x 512 tokens", partial(language, kind="qwen3", batch=16, length=512)),
    "olmo2": ("OLMo 2, 16 x 512 tokens", partial(language, kind="olmo2", batch=16, length=512)),
    "resnet50": ("ResNet-50, 256 images", partial(vision, name="resnet50", count=256)),
    "convnext": ("ConvNeXt-T, 128 images", partial(vision, name="convnext_tiny", count=128)),
    "vit": ("ViT-B/16, 128 images", partial(vision, name="vit_b_16", count=128)),
    "swin": ("Swin-T, 128 images", partial(vision, name="swin_t", count=128)),
    "efficientnet": (
        "EfficientNet-B0, 256 images",
        partial(vision, name="efficientnet_b0", count=256),
    ),
    "regnet": ("RegNetY-3.2GF, 256 images", partial(vision, name="regnet_y_3_2gf", count=256)),
}
WAITING: dict[str, tuple[str, Made]] = {
    "bert_small": ("BERT, 8 x 256 tokens", partial(language, kind="bert", batch=8, length=256)),
    "phi": ("Phi, 8 x 256 tokens", partial(language, kind="phi", batch=8, length=256)),
    "gpt_neox": (
        "GPT-NeoX, 8 x 512 tokens",
        partial(language, kind="gpt_neox", batch=8, length=512),
    ),
    "gemma": ("Gemma, 8 x 512 tokens", partial(language, kind="gemma", batch=8, length=512)),
}
_REPLAYED = "reduce-overhead"


def main() -> int:
    """Try the models that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser, rounds=3)
    names = [*FILLING, *WAITING]
    parser.add_argument("--models", nargs="*", choices=names, default=names)
    options = parser.parse_args()
    enable()
    return tell([_case(name) for name in options.models], options)


def _case(name: str) -> Case:
    if name in FILLING:
        words, made = FILLING[name]
        return Case("uncompiled", f"{words}, eager; compiled", partial(compiling, made=made))
    words, made = WAITING[name]
    pair = partial(compiling, made=made, mode=_REPLAYED)
    return Case("launch_bound", f"{words}, eager; `{_REPLAYED}`", pair)


if __name__ == "__main__":
    sys.exit(main())
