"""The models of ``benchmarks.rooflines``: a training step of each, small enough for ncu."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from benchmarks.models import GPT, channels_last
from benchmarks.steps import Step

VOCABULARY = 32_000


def _language_step(model: nn.Module, length: int, batch: int, device: str) -> Step:
    model = model.to(device)
    compiled = torch.compile(model)
    ids = torch.randint(0, VOCABULARY, (batch, length), device=device)

    def step() -> None:
        given = compiled(ids)
        logits = given if isinstance(given, torch.Tensor) else given.logits
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())
        loss.backward()
        model.zero_grad(set_to_none=True)

    return step


def _image_step(model: nn.Module, batch: int, dtype: torch.dtype, device: str) -> Step:
    model = channels_last(model.to(device)).train()
    compiled = torch.compile(model)
    images = torch.randn(batch, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device=device)

    def step() -> None:
        with torch.autocast(device, dtype, enabled=dtype is not torch.float32):
            logits = compiled(images).logits
        functional.cross_entropy(logits.float(), labels).backward()
        model.zero_grad(set_to_none=True)

    return step


def gpt(device: str, small: bool) -> Step:
    """A GPT in bf16, 768 wide: four of its twelve layers, which are all alike."""
    model = GPT(128 if small else 768, 2 if small else 4).to(torch.bfloat16)
    return _language_step(model, 64 if small else 1024, 2 if small else 8, device)


def llama(device: str, small: bool) -> Step:
    """A Llama as transformers has it, in bf16, with grouped keys."""
    from transformers import LlamaConfig, LlamaForCausalLM

    width = 128 if small else 2048
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=2,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 128,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    return _language_step(model, 64 if small else 1024, 2 if small else 4, device)


def t5(device: str, small: bool) -> Step:
    """A T5 in float32, without TF32: nothing of it may use tensor cores."""
    from transformers import T5Config, T5ForConditionalGeneration

    width = 128 if small else 512
    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=width,
        d_ff=4 * width,
        num_layers=2,
        num_heads=width // 64,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    torch.set_float32_matmul_precision("highest")
    model = T5ForConditionalGeneration(config).to(device)
    compiled = torch.compile(model)
    ids = torch.randint(0, VOCABULARY, (2 if small else 8, 64 if small else 256), device=device)

    def step() -> None:
        compiled(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        model.zero_grad(set_to_none=True)

    return step


def resnet(device: str, small: bool) -> Step:
    """A ResNet-50, in float32 with TF32 as torch has it for convolutions."""
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.set_float32_matmul_precision("high")
    depths = [1, 1, 1, 1] if small else [3, 4, 6, 3]
    config = ResNetConfig(depths=depths, num_labels=1000)
    model = ResNetForImageClassification(config)
    return _image_step(model, 2 if small else 32, torch.float32, device)


def vit(device: str, small: bool) -> Step:
    """A ViT under autocast to fp16."""
    from transformers import ViTConfig, ViTForImageClassification

    width = 128 if small else 768
    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=2 if small else 4,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        num_labels=1000,
    )
    model = ViTForImageClassification(config)
    return _image_step(model, 2 if small else 32, torch.float16, device)


MODELS = {"t5": t5, "vit": vit, "resnet": resnet, "gpt": gpt, "llama": llama}
