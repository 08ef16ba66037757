"""Forty training programs: public models by their configuration, with random weights.

At their sizes the peak on a GPU is about 0.3 to 1.5 GiB. ``tiny`` makes the same on the CPU, in
sizes at which a step takes less than a second.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verification.memory_prices.programs import GPT, device

__all__ = ["PROGRAMS", "Model", "Program", "adamw", "sent", "small_gpt"]

BFLOAT16 = torch.bfloat16
Step = Callable[[], object]


class Model(NamedTuple):
    """What a program trains: the loss is of what it runs and of a batch, which is on the host."""

    module: nn.Module
    loss: Callable[..., Tensor]
    batch: tuple[Tensor, ...]


@dataclass(frozen=True)
class Program:
    """A program, and what it needs to run."""

    name: str
    make: Callable[[bool], Step]  # of whether it is tiny
    ranks: int = 1
    devices: int = 1  # of one rank
    environment: dict[str, str] = field(default_factory=dict)


def sent(batch: tuple[Tensor, ...], to: str) -> list[Tensor]:
    """The batch on the device."""
    return [each.to(to, non_blocking=True) for each in batch]


def pinned(model: Model, tiny: bool) -> tuple[Tensor, ...]:
    return model.batch if tiny else tuple(each.pin_memory() for each in model.batch)


def adamw(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, **options)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def training(
    family: Callable[[bool], Model],
    tiny: bool,
    *,
    compiled: bool = False,
    amp: bool = False,
    dtype: torch.dtype = torch.float32,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = adamw,
    accumulate: int = 1,
    checkpoints: str = "",
    keeps: bool = False,
    clips: bool = False,
) -> Step:
    """A program's step, as its users write it."""
    torch.manual_seed(0)
    where = device(tiny)
    with torch.device(where):
        model = family(tiny)
    module = model.module.to(where).to(dtype).train()
    batch = pinned(Model(module, model.loss, tuple(each.cpu() for each in model.batch)), tiny)
    if checkpoints:
        getattr(module, checkpoints)()
    run = torch.compile(module) if compiled else module
    stepping = optimizer(module)
    losses: list[Tensor] = []

    def step() -> Tensor:
        stepping.zero_grad()
        for _ in range(accumulate):
            given = [x.to(dtype) if x.is_floating_point() else x for x in sent(batch, where)]
            with torch.autocast(where, BFLOAT16) if amp else nullcontext():
                loss = model.loss(run, *given) / accumulate
            loss.backward()
        if clips:
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        stepping.step()
        if keeps:
            losses.append(loss)
        return loss.detach()

    return step


# -- families -------------------------------------------------------------------------------------


def tokens(vocabulary: int, *shape: int) -> Tensor:
    return torch.randint(0, vocabulary, shape)


def labelled(run: nn.Module, x: Tensor) -> Tensor:
    loss: Tensor = run(input_ids=x, labels=x).loss
    return loss


def hugging_face(
    name: str,
    head: str,
    tiny: bool,
    *,
    sizes: dict[str, Any],
    small: dict[str, Any],
    batch: tuple[int, int] = (4, 256),
) -> Model:
    """A model of transformers; ``small`` are its sizes on the CPU."""
    transformers = import_module("transformers")
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    options = sizes | (small | {"vocab_size": 128} if tiny else {})
    config = getattr(transformers, f"{name}Config")(**ids, **options)
    config.use_cache = False
    made = getattr(transformers, f"{name}{head}")(config)
    return Model(made, labelled, (tokens(config.vocab_size, *((2, 16) if tiny else batch)),))


_DECODER = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8,
            "num_attention_heads": 8, "num_key_value_heads": 4}  # fmt: skip
_SMALL_DECODER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
                  "num_attention_heads": 2, "num_key_value_heads": 2}  # fmt: skip
_ENCODER = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6,
            "num_attention_heads": 8}  # fmt: skip
_SMALL_ENCODER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
                  "num_attention_heads": 2}  # fmt: skip
bert = partial(hugging_face, "Bert", "ForMaskedLM", sizes=_ENCODER, small=_SMALL_ENCODER)
distilbert = partial(
    hugging_face, "DistilBert", "ForMaskedLM",
    sizes={"dim": 512, "hidden_dim": 2048, "n_layers": 6, "n_heads": 8},
    small={"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 2},
)  # fmt: skip
bart = partial(
    hugging_face, "Bart", "ForConditionalGeneration", batch=(4, 128),
    sizes={"d_model": 512, "encoder_layers": 4, "decoder_layers": 4, "encoder_ffn_dim": 2048,
           "decoder_ffn_dim": 2048, "encoder_attention_heads": 8, "decoder_attention_heads": 8,
           "decoder_start_token_id": 2},
    small={"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64,
           "decoder_ffn_dim": 64, "encoder_attention_heads": 2, "decoder_attention_heads": 2},
)  # fmt: skip
gpt2 = partial(
    hugging_face, "GPT2", "LMHeadModel", batch=(1, 512),
    sizes={"n_embd": 512, "n_layer": 6, "n_head": 8},
    small={"n_embd": 32, "n_layer": 2, "n_head": 2},
)  # fmt: skip
llama = partial(hugging_face, "Llama", "ForCausalLM", sizes=_DECODER, small=_SMALL_DECODER)
mistral = partial(
    hugging_face, "Mistral", "ForCausalLM", small=_SMALL_DECODER | {"sliding_window": 8},
    sizes=_DECODER | {"sliding_window": 256, "vocab_size": 32000},
)  # fmt: skip
neox = partial(hugging_face, "GPTNeoX", "ForCausalLM", sizes=_ENCODER, small=_SMALL_ENCODER,
               batch=(1, 512))  # fmt: skip
opt = partial(
    hugging_face, "OPT", "ForCausalLM", batch=(1, 512),
    sizes={"hidden_size": 512, "ffn_dim": 2048, "num_hidden_layers": 6, "num_attention_heads": 8,
           "word_embed_proj_dim": 512},
    small={"hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
           "word_embed_proj_dim": 32},
)  # fmt: skip
qwen = partial(
    hugging_face, "Qwen2", "ForCausalLM", sizes=_DECODER | {"vocab_size": 50000},
    small=_SMALL_DECODER, batch=(1, 512),
)  # fmt: skip
t5 = partial(
    hugging_face, "T5", "ForConditionalGeneration", batch=(4, 128),
    sizes={"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 4, "num_heads": 8,
           "decoder_start_token_id": 0},
    small={"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2},
)  # fmt: skip


def classified(run: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(run(x), y)


def images(made: nn.Module, batch: int, size: int, tiny: bool) -> Model:
    """A classifier of images, in channels_last."""
    x = torch.randn(2 if tiny else batch, 3, size, size).to(memory_format=torch.channels_last)
    made = made.to(memory_format=torch.channels_last)
    return Model(made, classified, (x, torch.randint(0, 10, (len(x),))))


def timm(
    name: str, tiny: bool, *, batch: int, small: dict[str, Any] | None = None, size: int = 64
) -> Model:
    """A model of timm; ``small`` and ``size`` are its options and its images on the CPU."""
    options = {"num_classes": 10} if tiny else {}
    made = import_module("timm").create_model(name, **options, **(small or {} if tiny else {}))
    return images(made, batch, size if tiny else 224, tiny)


convnext = partial(
    timm, "convnext_tiny", batch=16, small={"depths": (1, 1, 2, 1), "dims": (16, 32, 64, 128)}
)
efficientnet = partial(timm, "efficientnet_b0", batch=32)
mixer = partial(timm, "mixer_s16_224", batch=48, size=224)
swin = partial(timm, "swin_tiny_patch4_window7_224", batch=12, size=224,
               small={"embed_dim": 24, "depths": (1, 1, 2, 1)})  # fmt: skip
vit = partial(timm, "vit_small_patch16_224", batch=32, size=224,
              small={"depth": 2, "embed_dim": 96, "num_heads": 3})  # fmt: skip


def torchvision(name: str, tiny: bool, *, batch: int, size: int = 64) -> Model:
    """A model of torchvision."""
    made = getattr(import_module("torchvision.models"), name)(num_classes=10 if tiny else 1000)
    return images(made, batch, size if tiny else 224, tiny)


densenet = partial(torchvision, "densenet121", batch=12)
mobilenet = partial(torchvision, "mobilenet_v3_large", batch=24)


def resnet50(tiny: bool) -> Model:
    resnet = import_module("torchvision.models.resnet")
    layers, classes = ([1, 1, 1, 1], 10) if tiny else ([3, 4, 6, 3], 1000)
    return images(resnet.ResNet(resnet.Bottleneck, layers, classes), 16, 64 if tiny else 224, tiny)


def small_gpt(tiny: bool) -> Model:
    """A GPT as nanoGPT has it."""
    vocabulary, width, heads, layers, time = (64, 32, 2, 2, 16) if tiny else (50304, 512, 8, 6, 512)
    made = GPT(vocabulary, width, heads, layers, time)
    shape = (2, 16) if tiny else (1, time)
    x, y = tokens(vocabulary, *shape), tokens(vocabulary, *shape)
    return Model(made, lambda run, x, y: run(x, y), (x, y))


class WordModel(nn.Module):
    """As ``word_language_model`` of pytorch/examples."""

    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding, self.drop = nn.Embedding(vocabulary, width), nn.Dropout(0.2)
        self.lstm = nn.LSTM(width, width, layers, dropout=0.2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.drop(self.embedding(x)))
        result: Tensor = self.head(self.drop(hidden))
        return result


def lstm(tiny: bool) -> Model:
    vocabulary, width, shape = (64, 16, (2, 9)) if tiny else (33278, 650, (20, 71))
    x = tokens(vocabulary, *shape)

    def loss(run: nn.Module, x: Tensor) -> Tensor:
        return F.cross_entropy(run(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())

    return Model(WordModel(vocabulary, width, 2), loss, (x,))


class Recommender(nn.Module):
    """As DLRM: bags of categories, a bottom and a top network, and products of all pairs."""

    def __init__(self, rows: int, bags: int, width: int, *, sparse: bool) -> None:
        super().__init__()
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(rows, width, mode="sum", sparse=sparse) for _ in range(bags)
        )
        self.bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        pairs = (bags + 1) * bags // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, dense: Tensor, categories: Tensor) -> Tensor:
        x = self.bottom(dense)
        own = [bag(each) for bag, each in zip(self.bags, categories.unbind(1), strict=True)]
        every = torch.stack([x, *own], 1)
        products = torch.bmm(every, every.transpose(1, 2))
        rows, columns = torch.tril_indices(len(own) + 1, len(own) + 1, -1, device=x.device)
        result: Tensor = self.top(torch.cat([x, products[:, rows, columns]], 1))
        return result.squeeze(1)


def recommender(tiny: bool, *, sparse: bool = False) -> Model:
    rows, bags, width, batch = (50, 3, 8, 4) if tiny else (100_000, 8, 64, 4096)
    given = (torch.randn(batch, 13), tokens(rows, batch, bags, 4), torch.rand(batch).round())

    def loss(run: nn.Module, dense: Tensor, categories: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(run(dense, categories), y)

    return Model(Recommender(rows, bags, width, sparse=sparse), loss, given)


def twice(before: int, after: int) -> nn.Sequential:
    layers = []
    for channels in (before, after):
        layers += [nn.Conv2d(channels, after, 3, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """As milesial/Pytorch-UNet."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [width << at for at in range(depth + 1)]
        pairs = [*pairwise(widths)]
        self.first, self.last = twice(3, width), nn.Conv2d(width, 2, 1)
        self.down = nn.ModuleList(twice(*each) for each in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(pairs))
        self.joined = nn.ModuleList(twice(b, a) for a, b in reversed(pairs))

    def forward(self, x: Tensor) -> Tensor:
        kept = [self.first(x)]
        for down in self.down:
            kept.append(down(F.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for up, joined in zip(self.up, self.joined, strict=True):
            x = joined(torch.cat([kept.pop(), up(x)], 1))
        result: Tensor = self.last(x)
        return result


def unet(tiny: bool) -> Model:
    width, depth, shape = (8, 2, (2, 3, 32, 32)) if tiny else (32, 4, (4, 3, 192, 192))
    x = torch.randn(*shape)
    return Model(UNet(width, depth), classified, (x, torch.randint(0, 2, (shape[0], *shape[2:]))))


# -- the forty ------------------------------------------------------------------------------------


def _program(name: str, family: Callable[[bool], Model], **options: Any) -> Program:
    return Program(name, partial(training, family, **options))


_FUSED = partial(adamw, fused=True)
_CHECKPOINTS = "gradient_checkpointing_enable"


def _adagrad(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(model.parameters(), lr=1e-2)


def _rmsprop(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(model.parameters(), lr=1e-4, momentum=0.9)


PROGRAMS = (
    _program("bart", bart, amp=True),
    _program("bert", bert),
    _program("bert_amp", bert, amp=True, clips=True),
    _program("bert_compiled", bert, amp=True, compiled=True),
    _program("convnext", convnext, amp=True),
    _program("convnext_compiled", convnext, amp=True, compiled=True),
    _program("densenet", densenet, optimizer=sgd),
    _program("distilbert", distilbert, amp=True),
    _program("efficientnet", efficientnet, amp=True, optimizer=_rmsprop),
    _program("gpt", small_gpt, amp=True, optimizer=_FUSED, clips=True),
    _program("gpt_compiled", small_gpt, amp=True, compiled=True, optimizer=_FUSED),
    _program("gpt2", gpt2),
    _program("gpt2_amp", gpt2, amp=True),
    _program("gpt2_checkpoint", gpt2, amp=True, checkpoints=_CHECKPOINTS),
    _program("gpt2_compiled", gpt2, amp=True, compiled=True),
    _program("gpt2_kept_losses", gpt2, amp=True, keeps=True),
    _program("llama", llama, dtype=BFLOAT16),
    _program("llama_accumulate", llama, dtype=BFLOAT16, accumulate=4),
    _program("llama_checkpoint", llama, dtype=BFLOAT16, checkpoints=_CHECKPOINTS),
    _program("llama_compiled_fused", llama, dtype=BFLOAT16, compiled=True, optimizer=_FUSED),
    _program("llama_fused", llama, dtype=BFLOAT16, optimizer=_FUSED),
    _program("lstm", lstm, optimizer=sgd, clips=True),
    _program("mistral", mistral, dtype=BFLOAT16),
    _program("mixer", mixer, amp=True),
    _program("mobilenet", mobilenet, optimizer=_rmsprop),
    _program("mobilenet_compiled", mobilenet, amp=True, compiled=True, optimizer=sgd),
    _program("neox", neox, amp=True),
    _program("opt", opt, amp=True),
    _program("qwen", qwen, dtype=BFLOAT16),
    _program("qwen_compiled", qwen, dtype=BFLOAT16, compiled=True),
    _program("recommender", recommender, optimizer=_adagrad),
    _program("recommender_sparse", partial(recommender, sparse=True), optimizer=_adagrad),
    _program("resnet50", resnet50, optimizer=sgd),
    _program("resnet50_compiled", resnet50, amp=True, compiled=True, optimizer=sgd),
    _program("swin", swin, amp=True),
    _program("t5", t5),
    _program("t5_compiled", t5, compiled=True),
    _program("unet", unet, amp=True),
    _program("unet_compiled", unet, amp=True, compiled=True),
    _program("vit", vit, amp=True, optimizer=_FUSED),
)
