"""Twenty steps at their best settings, of which nothing large should be said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .convolutions import resnet
from .inference import decoder, replayed
from .products import DLRM, Sequence, clicks_of
from .program import Sizes, Step, compiled, fused_adamw, seeded, training
from .settings import Graph
from .vision import UNet, ViT, images_of, labels_of
from .waits import Experts

__all__ = [
    "bert_compiled",
    "convnext_compiled",
    "decode_compiled",
    "decode_graphed",
    "diffusion_compiled",
    "dlrm_compiled",
    "experts_batched",
    "gpt2_compiled",
    "gpt_bf16_compiled",
    "gpt_compiled",
    "gpt_graphed",
    "graph_network_compiled",
    "llama_compiled",
    "lstm_cudnn",
    "prefill_compiled",
    "resnet_channels_last",
    "resnet_compiled",
    "resnet_inference_graphed",
    "vit_compiled",
    "vit_inference_compiled",
]


def _gpt(sizes: Sizes, options: dict[str, Any], **changes: Any) -> Step:
    model, tokens, targets = gpt.made(sizes, **changes)
    loss_of = compiled(lambda: gpt.loss_of(model, tokens, targets), sizes, **options)
    return Step(training(loss_of, fused_adamw(model), sizes))


def gpt_compiled(sizes: Sizes) -> Step:
    return _gpt(sizes, {}, batch=sizes.of(16, 2))


def gpt_graphed(sizes: Sizes) -> Step:
    return _gpt(sizes, {"mode": "reduce-overhead"}, layers=sizes.of(6, 2), batch=sizes.of(4, 2))


def gpt_bf16_compiled(sizes: Sizes) -> Step:
    model, tokens, targets = gpt.made(sizes, batch=sizes.of(16, 2))
    model = model.bfloat16()
    loss_of = compiled(lambda: gpt.loss_of(model, tokens, targets), sizes)
    return Step(training(loss_of, fused_adamw(model), sizes, is_mixed=False))


def _classified(model: nn.Module, images: Tensor, sizes: Sizes) -> Step:
    labels, optimizer = labels_of(images), fused_adamw(model)
    return Step(training(lambda: F.cross_entropy(model(images), labels), optimizer, sizes))


def _images_last(sizes: Sizes, batch: int) -> Tensor:
    return images_of(sizes, batch).to(memory_format=torch.channels_last)


def _benchmarked(step: Step) -> Step:
    return Step(step.run, lambda: torch.backends.cudnn.flags(enabled=True, benchmark=True))


def resnet_channels_last(sizes: Sizes) -> Step:
    return _benchmarked(_classified(resnet(sizes), _images_last(sizes, 128), sizes))


def resnet_compiled(sizes: Sizes, **options: Any) -> Step:
    model = compiled(resnet(sizes), sizes, **options)
    return _benchmarked(_classified(model, _images_last(sizes, 128), sizes))


def resnet_inference_graphed(sizes: Sizes) -> Step:
    model = resnet(sizes).eval().bfloat16()
    images = _images_last(sizes, 64).bfloat16()
    run = compiled(model, sizes, mode="reduce-overhead")

    @torch.inference_mode()
    def step() -> Tensor:
        return run(images).float().mean()

    return Step(step)


def _vit(sizes: Sizes) -> ViT:
    layers, width, heads = sizes.of((12, 768, 12), (2, 48, 4))
    return seeded(lambda: ViT(layers, width, heads), sizes)


def vit_compiled(sizes: Sizes) -> Step:
    return _classified(compiled(_vit(sizes), sizes), images_of(sizes, 128), sizes)


def vit_inference_compiled(sizes: Sizes) -> Step:
    model, images = _vit(sizes).eval().bfloat16(), images_of(sizes, 128).bfloat16()
    run = compiled(model, sizes)

    @torch.inference_mode()
    def step() -> Tensor:
        return run(images).float().mean()

    return Step(step)


class ConvNeXtBlock(nn.Module):
    """A depthwise convolution and an MLP, with channels last throughout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """ConvNeXt-T."""

    def __init__(self, depths: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.stages = nn.Sequential(nn.Conv2d(3, width, 4, 4))
        for stage, depth in enumerate(depths):
            if stage:
                self.stages.append(nn.Conv2d(width << stage - 1, width << stage, 2, 2))
            self.stages.extend(ConvNeXtBlock(width << stage) for _ in range(depth))
        self.head = nn.Linear(width << len(depths) - 1, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(x).mean((2, 3)))


def convnext_compiled(sizes: Sizes) -> Step:
    depths, width = sizes.of(((3, 3, 9, 3), 96), ((1, 1), 8))
    model = seeded(lambda: ConvNeXt(depths, width), sizes).to(memory_format=torch.channels_last)
    return _classified(compiled(model, sizes), _images_last(sizes, 128), sizes)


def diffusion_compiled(sizes: Sizes, **options: Any) -> Step:
    width, batch, side = sizes.of((128, 32, 64), (8, 2, 16))
    model = seeded(lambda: UNet(4, width, 4), sizes).to(memory_format=torch.channels_last)
    latents = seeded(lambda: torch.randn(batch, 4, side, side), sizes)
    run, optimizer = compiled(model, sizes, **options), fused_adamw(model)

    def loss() -> Tensor:
        noise = torch.randn_like(latents)
        return F.mse_loss(run(latents * 0.8 + noise * 0.6), noise)

    return Step(training(loss, optimizer, sizes))


def dlrm_compiled(sizes: Sizes, **options: Any) -> Step:
    features, rows, width, batch = sizes.of((64, 2000, 64, 32768), (4, 20, 8, 16))
    model = seeded(lambda: DLRM(features, rows, width, is_apart=False), sizes)
    categories, numbers, clicks = clicks_of(sizes, features, rows, batch)
    run = compiled(model, sizes, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss() -> Tensor:
        return F.binary_cross_entropy_with_logits(run(categories, numbers), clicks)

    return Step(training(loss, optimizer, sizes))


def experts_batched(sizes: Sizes) -> Step:
    layers, width, tokens, slack = sizes.of((6, 1024, 16384, 1.5), (2, 16, 64, 16.0))
    model = seeded(
        lambda: nn.Sequential(*(Experts(width, False, slack) for _ in range(layers))), sizes
    )
    x = seeded(lambda: torch.randn(tokens, width), sizes)
    run, optimizer = compiled(model, sizes), fused_adamw(model)
    return Step(training(lambda: run(x).square().mean(), optimizer, sizes))


def graph_network_compiled(sizes: Sizes, made: Callable[..., nn.Module] = Graph) -> Step:
    width, layers, nodes, edges = sizes.of((128, 4, 40_000, 400_000), (8, 2, 20, 60))
    model = seeded(lambda: made(width, layers), sizes)
    x, sources, targets = seeded(
        lambda: (
            torch.randn(nodes, width),
            torch.randint(0, nodes, (edges,)),
            torch.randint(0, nodes, (edges,)),
        ),
        sizes,
    )
    run, optimizer = compiled(model, sizes), fused_adamw(model)
    return Step(training(lambda: run(x, sources, targets).square().mean(), optimizer, sizes))


def lstm_cudnn(sizes: Sizes) -> Step:
    width, moments, batch = sizes.of((1024, 256, 128), (16, 5, 2))
    model = seeded(lambda: Sequence(width, is_loop=False), sizes)
    x = seeded(lambda: torch.randn(batch, moments, width), sizes)
    optimizer = fused_adamw(model)
    for group in optimizer.param_groups:
        group["capturable"] = True  # as fast, and a CUDA graph may record it
    return Step(training(lambda: F.mse_loss(model(x)[:, :-1], x[:, 1:]), optimizer, sizes))


def prefill_compiled(sizes: Sizes) -> Step:
    model, tokens, _ = gpt.made(sizes, batch=sizes.of(32, 2))
    model = model.bfloat16().eval()
    run = compiled(model, sizes)

    @torch.inference_mode()
    def step() -> Tensor:
        return run(tokens)[:, -1].float().mean()

    return Step(step)


def _decoding(sizes: Sizes, graph: Callable[..., Callable[[Tensor], Tensor]]) -> Step:
    count, prompt = sizes.of((16, 256), (3, 16))
    decode, tokens = decoder(sizes, 1)
    with torch.no_grad():
        first = decode.prompt(tokens[:, :prompt])
        run = graph(decode, first)

    @torch.no_grad()
    def step() -> Tensor:
        decode.at.fill_(prompt)
        token = first
        for _ in range(count):
            token = run(token).clone()
        return token.float().mean()

    return Step(step)


def decode_graphed(sizes: Sizes) -> Step:
    return _decoding(sizes, (lambda decode, _: decode) if sizes.is_tiny else replayed)


def decode_compiled(sizes: Sizes) -> Step:
    return _decoding(sizes, lambda decode, _: compiled(decode, sizes, mode="reduce-overhead"))


def _library(sizes: Sizes, kind: str, config: Any, batch: int, length: int) -> Step:
    """The training step of a model of Transformers, compiled, with SDPA."""
    import transformers

    config._attn_implementation = "sdpa"
    model = seeded(lambda: getattr(transformers, kind)(config), sizes)
    count, length = sizes.of((batch, length), (2, 16))
    tokens = seeded(lambda: torch.randint(0, config.vocab_size, (count, length)), sizes)
    run, optimizer = compiled(model, sizes), fused_adamw(model)
    return Step(training(lambda: run(input_ids=tokens, labels=tokens).loss, optimizer, sizes))


def gpt2_compiled(sizes: Sizes) -> Step:
    from transformers import GPT2Config

    layers, width, heads, words = sizes.of((12, 768, 12, 50304), (2, 32, 2, 128))
    config = GPT2Config(
        vocab_size=words, n_layer=layers, n_embd=width, n_head=heads, use_cache=False
    )
    return _library(sizes, "GPT2LMHeadModel", config, 16, 1024)


def llama_compiled(sizes: Sizes) -> Step:
    from transformers import LlamaConfig

    layers, width, heads, words = sizes.of((12, 768, 12, 32000), (2, 32, 2, 128))
    config = LlamaConfig(
        vocab_size=words,
        hidden_size=width,
        intermediate_size=sizes.of(2048, 64),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        use_cache=False,
    )
    return _library(sizes, "LlamaForCausalLM", config, 16, 1024)


def bert_compiled(sizes: Sizes) -> Step:
    from transformers import BertConfig

    layers, width, heads, words = sizes.of((12, 768, 12, 30528), (2, 32, 2, 128))
    config = BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    return _library(sizes, "BertForMaskedLM", config, 32, 512)
