"""Trials that were written after the rules, and by which some rules were mended since.

Other models, each with the edit that is recommended. Batches are such that memory is short, as
where it counts: the GPU sets the pace then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from verification.memory_peaks.programs import (
    Model,
    WordModel,
    hugging_face,
    images,
    labelled,
    tokens,
)

from .programs import (
    BFLOAT16,
    GPT,
    Claim,
    Step,
    Trial,
    adamw,
    checkpointed,
    chunked_loss,
    device,
    training,
)

__all__ = ["MENDED", "in_chunks", "per_block", "timm", "trial", "weights_in_bfloat16"]

Optimizer = torch.optim.Optimizer
Family = Callable[..., Model]
Edit = Callable[[nn.Module, Claim], None]
ChunkedLoss = Callable[..., Tensor]  # of the model, the number of chunks, and the batch


def trained(
    claim: Claim | None,
    tiny: bool,
    *,
    family: Family,
    edit: Edit | None = None,
    chunked: ChunkedLoss | None = None,
    optimizer: Callable[..., Optimizer] = adamw,
    edited_optimizer: Callable[..., Optimizer] | None = None,
    batch_of: Callable[[Claim], int] | None = None,
    dtype: torch.dtype = torch.float32,
    amp: bool = True,
    zeroes: bool = False,
) -> Step:
    """A step of a model, as it is or edited as the claim says."""
    torch.manual_seed(0)
    options = {} if claim is None or batch_of is None else {"batch": batch_of(claim)}
    made = family(tiny, **options)
    model = made.module.to(device(tiny)).to(dtype)
    batch = [x.to(device(tiny)) for x in made.batch]
    if claim is not None and edit is not None:
        edit(model, claim)

    def loss() -> Tensor:
        if claim is not None and chunked is not None:
            return chunked(model, claim.figure("chunks"), *batch)
        return made.loss(model, *batch)

    of = edited_optimizer if claim is not None and edited_optimizer else optimizer
    none = not zeroes or claim is not None
    return training(model, loss, of(model, tiny), amp=amp, set_to_none=none)


def per_block(model: nn.Module, claim: Claim) -> None:
    checkpointed(model, claim.module or "")


def weights_in_bfloat16(model: nn.Module, _: Claim) -> None:
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            module.to(BFLOAT16)


def adamw_8bit(model: nn.Module, _: bool) -> Optimizer:
    made: Optimizer = import_module("torchao.optim").AdamW8bit(model.parameters(), lr=1e-4)
    return made


# -- families -------------------------------------------------------------------------------------


def timm(name: str, tiny: bool, *, batch: int, small: dict[str, Any]) -> Model:
    options = {**small, "num_classes": 10} if tiny else {}
    return images(import_module("timm").create_model(name, **options), batch, 224, tiny)


_SMALL_BERT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
               "num_attention_heads": 2}  # fmt: skip
_LARGE = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
          "num_attention_heads": 16}  # fmt: skip
vit_large = partial(
    timm, "vit_large_patch16_224", small={"depth": 2, "embed_dim": 32, "num_heads": 2}
)
swin = partial(timm, small={"embed_dim": 24, "depths": (1, 1, 2, 1)})
bert = partial(hugging_face, "Bert", "ForMaskedLM", small=_SMALL_BERT)
t5_base = partial(
    hugging_face, "T5", "ForConditionalGeneration",
    sizes={"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12,
           "decoder_start_token_id": 0},
    small={"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2},
)  # fmt: skip
qwen = partial(
    hugging_face, "Qwen2", "ForCausalLM",
    sizes={"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 12,
           "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
           "tie_word_embeddings": True},
    small={"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
           "num_attention_heads": 2, "num_key_value_heads": 2},
)  # fmt: skip


def densenet(tiny: bool, *, batch: int) -> Model:
    """Each layer takes the concatenation of all before it."""
    made = import_module("torchvision.models").densenet
    options = {"growth_rate": 8, "block_config": (2, 2), "num_init_features": 8} if tiny else {}
    model = made.DenseNet(**options) if tiny else made.densenet201()
    return images(model, batch, 64 if tiny else 224, tiny)


def masked(tiny: bool, *, batch: int) -> Model:
    """BERT, of which 15% of the tokens are masked."""
    made = bert(tiny, sizes={}, batch=(batch, 512))
    (x,) = made.batch
    chosen = torch.rand(x.shape, device=x.device) < 0.15
    chosen[:, 0] = True
    return Model(made.module, _masked_loss, (x.masked_fill(chosen, 3), x.where(chosen, -100)))


def _masked_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    loss: Tensor = model(input_ids=x, labels=y).loss
    return loss


def _masked_chunks(model: Any, chunks: int, x: Tensor, y: Tensor) -> Tensor:
    hidden = model.bert(input_ids=x).last_hidden_state
    hidden = model.cls.predictions.transform(hidden).flatten(0, 1)
    head = model.cls.predictions.decoder
    return in_chunks(head, hidden, y.flatten(), chunks)  # its loss takes bfloat16


def _causal_chunks(model: Any, chunks: int, x: Tensor) -> Tensor:
    hidden = model.model(input_ids=x).last_hidden_state.flatten(0, 1)
    labels = F.pad(x, (0, 1), value=-100)[:, 1:].flatten()
    return in_chunks(lambda h: model.lm_head(h).float(), hidden, labels, chunks)


def in_chunks(head: Callable[[Tensor], Tensor], h: Tensor, y: Tensor, chunks: int) -> Tensor:
    """The mean cross entropy of the tokens that have a label, of one chunk at a time."""

    def of_chunk(h: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(head(h), y, reduction="sum").float()

    pairs = zip(h.chunk(chunks), y.chunk(chunks), strict=True)
    sums = [checkpoint(of_chunk, *each, use_reentrant=False) for each in pairs]
    return torch.stack(sums).sum() / (y != -100).sum()


def tied_gpt(tiny: bool, *, batch: int) -> Model:
    """A GPT whose head is its embedding."""
    vocabulary, width, layers, time = (64, 32, 2, 16) if tiny else (50304, 1280, 8, 1024)
    made = GPT(vocabulary, width, 2 if tiny else 20, layers, time)
    made.head.weight = made.tok.weight
    nn.init.normal_(made.tok.weight, std=0.02)
    pairs = (tokens(vocabulary, 2 if tiny else batch, time) for _ in range(2))
    return Model(made, lambda model, x, y: model(x, y), tuple(pairs))


def _tied_chunks(model: Any, chunks: int, x: Tensor, y: Tensor) -> Tensor:
    h = model.tok(x) + model.pos(model.at)
    for block in model.blocks:
        h = block(h)
    return chunked_loss(model.head, model.norm(h).flatten(0, 1), y.flatten(), chunks)


def lstm(tiny: bool, *, batch: int) -> Model:
    """A language model of an LSTM."""
    vocabulary, width, shape = (64, 16, (2, 9)) if tiny else (33278, 1500, (batch, 129))
    made = WordModel(vocabulary, width, 2)

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        return F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())

    return Model(made, loss, (tokens(vocabulary, *shape),))


class Residual(nn.Module):
    """A block of a diffusion model, with the time of its noise; it may attend to itself."""

    def __init__(self, before: int, after: int, *, attends: bool, groups: int) -> None:
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(groups, before), nn.Conv2d(before, after, 3, padding=1)
        self.n2, self.c2 = nn.GroupNorm(groups, after), nn.Conv2d(after, after, 3, padding=1)
        self.time = nn.Linear(128, after)
        self.skip = nn.Identity() if before == after else nn.Conv2d(before, after, 1)
        self.norm = nn.GroupNorm(groups, after) if attends else None
        self.qkv = nn.Conv2d(after, 3 * after, 1) if attends else None
        self.out = nn.Conv2d(after, after, 1) if attends else None

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.c1(F.silu(self.n1(x))) + self.time(F.silu(time))[:, :, None, None]
        result: Tensor = self.skip(x) + self.c2(F.silu(self.n2(h)))
        if self.qkv is None or self.norm is None or self.out is None:
            return result
        q, k, v = self.qkv(self.norm(result)).flatten(2).mT.unsqueeze(1).chunk(3, -1)
        a = F.scaled_dot_product_attention(q, k, v).squeeze(1).mT.reshape(result.shape)
        attended: Tensor = result + self.out(a)
        return attended


class Denoiser(nn.Module):
    """The UNet of DDPM: two blocks a level, attention at the lower levels, concatenated skips."""

    def __init__(self, width: int, factors: tuple[int, ...], groups: int) -> None:
        super().__init__()
        widths, last = [width * each for each in factors], len(factors) - 1
        self.first, self.embed = nn.Conv2d(3, width, 3, padding=1), nn.Linear(128, 128)
        down, shrink, up, grow, kept = [], [], [], [], [width]
        now = width
        for level, own in enumerate(widths):
            for _ in range(2):
                down.append(Residual(now, own, attends=level > 0, groups=groups))
                kept.append(own)
                now = own
            if level < last:
                shrink.append(nn.Conv2d(own, own, 3, 2, 1))
                kept.append(own)
        self.middle = Residual(now, now, attends=True, groups=groups)
        for level, own in reversed([*enumerate(widths)]):
            for _ in range(3):
                up.append(Residual(now + kept.pop(), own, attends=level > 0, groups=groups))
                now = own
            if level:
                grow.append(nn.Conv2d(own, own, 3, padding=1))
        self.down, self.shrink = nn.ModuleList(down), nn.ModuleList(shrink)
        self.up, self.grow = nn.ModuleList(up), nn.ModuleList(grow)
        self.norm, self.last = nn.GroupNorm(groups, now), nn.Conv2d(now, 3, 3, padding=1)

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        rates = torch.exp(torch.arange(64, device=x.device) * (-math.log(10_000) / 64))
        angles = at[:, None] * rates
        time = self.embed(torch.cat([angles.sin(), angles.cos()], 1))
        x = self.first(x)
        kept = [x]
        for number, block in enumerate(self.down):
            x = block(x, time)
            kept.append(x)
            if number % 2 and number // 2 < len(self.shrink):
                x = self.shrink[number // 2](x)
                kept.append(x)
        x = self.middle(x, time)
        for number, block in enumerate(self.up):
            x = block(torch.cat([x, kept.pop()], 1), time)
            if number % 3 == 2 and number // 3 < len(self.grow):
                x = self.grow[number // 3](F.interpolate(x, scale_factor=2.0))
        result: Tensor = self.last(F.silu(self.norm(x)))
        return result


def ddpm(tiny: bool, *, batch: int) -> Model:
    """A diffusion model that learns to predict noise."""
    width, factors, groups, size = (8, (1, 2), 4, 16) if tiny else (128, (1, 2, 2, 4), 32, 64)
    batch = 2 if tiny else batch
    images, noise = (torch.randn(batch, 3, size, size) for _ in range(2))

    def loss(model: nn.Module, x: Tensor, noise: Tensor, at: Tensor) -> Tensor:
        keep = torch.cos(at / 1000)[:, None, None, None]
        noisy = keep * x + (1 - keep**2).sqrt() * noise
        return F.mse_loss(model(noisy, at).float(), noise)

    at = torch.randint(0, 1000, (batch,)).float()
    return Model(Denoiser(width, factors, groups), loss, (images, noise, at))


# -- of several ranks, and of lengths that change -------------------------------------------------


def ddp_bert(claim: Claim | None, tiny: bool) -> Step:
    """Each rank keeps the whole state of the optimizer, or a part of it."""
    torch.manual_seed(0)
    made = bert(tiny, sizes=_LARGE, batch=(4, 512))
    model = made.module.to(device(tiny))
    batch = [x.to(device(tiny)) for x in made.batch]
    run = nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model
    optimizer = adamw(model, tiny)
    if claim is not None and dist.is_initialized():
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-4, foreach=True
        )
    return training(model, lambda: labelled(run, *batch), optimizer)


def t5_lengths(_: Claim | None, tiny: bool) -> Step:
    """Texts of different lengths, batch after batch."""
    torch.manual_seed(0)
    made = t5_base(tiny)
    model = made.module.to(device(tiny))
    lengths = (9, 14) if tiny else (183, 451, 257, 512, 97, 389, 311, 475)
    batches = [tokens(100, 2 if tiny else 16, each).to(device(tiny)) for each in lengths]
    number = count()
    return training(
        model, lambda: labelled(model, batches[next(number) % len(batches)]), adamw(model, tiny)
    )


# -- the trials -----------------------------------------------------------------------------------


def trial(name: str, rule: str, words: str = "", **options: Any) -> Trial:
    """A trial of a family of models, as it is and edited."""
    own = {key: options.pop(key) for key in ("shapes", "blocks") if key in options}
    return Trial(name, rule, partial(trained, **options), edit=words, **own)


_EACH = "checkpoint(module, x) for each module of the claim"
_CHUNKS = "projection and loss in the chunks that are said"
_SEGMENTS = "expandable_segments:True"
MENDED = (
    trial("vit_large", "kept_activations", _EACH, family=partial(vit_large, batch=256),
           edit=per_block, blocks="blocks.*"),
    trial("swin_base", "kept_activations", _EACH, edit=per_block, blocks="layers.*.blocks.*",
           family=partial(swin, "swin_base_patch4_window7_224", batch=256)),
    trial("densenet", "kept_activations", _EACH, family=partial(densenet, batch=384),
           edit=per_block, blocks="features.denseblock*.denselayer*"),
    trial("ddpm", "kept_activations", _EACH, family=partial(ddpm, batch=192), edit=per_block,
           blocks="down.*"),
    trial("t5", "kept_activations", _EACH, family=partial(t5_base, batch=(40, 384)),
           edit=per_block, blocks="encoder.block.*"),
    trial("bert_masked", "chunked_loss", _CHUNKS, family=partial(masked, batch=72),
           chunked=_masked_chunks),
    trial("qwen_tied", "chunked_loss", _CHUNKS, family=partial(qwen, batch=(16, 1024)),
           chunked=_causal_chunks, dtype=BFLOAT16, amp=False),
    trial("gpt_tied", "chunked_loss", _CHUNKS, family=partial(tied_gpt, batch=36),
           chunked=_tied_chunks),
    trial("lstm_zeroed", "kept_gradients", "zero_grad(set_to_none=True)",
           family=partial(lstm, batch=24), zeroes=True),
    trial("vit_zeroed", "kept_gradients", "zero_grad(set_to_none=True)",
           family=partial(vit_large, batch=64), zeroes=True),
    trial("bert_weights", "weight_copies", "nn.Linear in bfloat16", edit=weights_in_bfloat16,
           family=partial(bert, sizes=_LARGE, batch=(24, 512))),
    trial("t5_foreach", "optimizer_temporaries", "fused=True", amp=False,
           family=partial(t5_base, batch=(2, 128)),
           edited_optimizer=partial(adamw, fused=True, foreach=None)),
    trial("vit_8bit", "optimizer_8bit", "torchao.optim.AdamW8bit",
           family=partial(vit_large, batch=4), edited_optimizer=adamw_8bit),
    Trial("bert_sharded", "sharded_optimizer", ddp_bert, edit="ZeroRedundancyOptimizer", ranks=2),
    Trial("t5_lengths", "fragmented_memory", t5_lengths, reserves=True, steps=8, edit=_SEGMENTS,
          environment=(("PYTORCH_CUDA_ALLOC_CONF", _SEGMENTS),)),
    trial("swin_batch", "batch_size", "the batch that is said to fit", shapes=True,
           family=partial(swin, "swin_tiny_patch4_window7_224", batch=48),
           batch_of=lambda claim: claim.figure("larger batch")),
)  # fmt: skip
