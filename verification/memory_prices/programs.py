"""Training steps that memory recommendations are about, and the same with the edit made.

A program is built by ``make(edited)``. ``edited`` is ``None`` for the program as it is, else the
claim that the edit follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

__all__ = ["TRIALS", "Claim", "Trial"]

BFLOAT16 = torch.bfloat16
Step = Callable[[], Tensor]


@dataclass(frozen=True)
class Claim:
    """What the recommendation says that an edit needs to know."""

    module: str | None = None
    figures: tuple[tuple[str, float | str], ...] = ()

    def figure(self, name: str) -> int:
        return int(dict(self.figures)[name])


@dataclass(frozen=True)
class Trial:
    """A program and the recommendation that is tried on it."""

    name: str
    rule: str
    make: Callable[[Claim | None, bool], Step]
    module: str = ""  # that the recommendation must be about, where there may be several
    edit: str = ""  # in words
    reserves: bool = False  # the peak of reserved memory
    shapes: bool = False  # recorded with the shapes of eager ops
    environment: tuple[tuple[str, str], ...] = ()  # of the edited program
    steps: int = 3  # recorded
    ranks: int = 1
    blocks: str = ""  # modules that ``tiny`` checkpoints, where its own session claims nothing


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        qkv = self.qkv(self.n1(x)).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(batch, time, width))
        result: Tensor = x + self.down(F.gelu(self.up(self.n2(x))))
        return result


class GPT(nn.Module):
    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, time: int) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocabulary, width), nn.Embedding(time, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("at", torch.arange(time))
        self.chunks = 1

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.tok(x) + self.pos(self.at)
        for block in self.blocks:
            h = block(h)
        h = self.norm(h)
        if self.chunks > 1:
            return chunked_loss(self.head, h.flatten(0, 1), y.flatten(), self.chunks)
        return F.cross_entropy(self.head(h).float().flatten(0, 1), y.flatten())


def chunked_loss(head: nn.Module, h: Tensor, y: Tensor, chunks: int) -> Tensor:
    """The mean cross entropy, of one chunk of tokens at a time."""

    def of_chunk(h: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(head(h).float(), y, reduction="sum")

    pairs = zip(h.chunk(chunks), y.chunk(chunks), strict=True)
    sums = [checkpoint(of_chunk, *each, use_reentrant=False) for each in pairs]
    return torch.stack(sums).sum() / y.numel()


def checkpointed(model: nn.Module, pattern: str) -> None:
    """Checkpoint each module whose path fits the claim's, with ``*`` for numbers."""
    own = [
        module
        for path, module in model.named_modules()
        if "".join("*" if part.isdigit() else part for part in _parts(path)) == pattern
    ]
    if not own:
        raise ValueError(f"no module is {pattern}")
    for module in own:
        module.forward = partial(_computed_again, module.forward)


def _computed_again(forward: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """A list is copied: DenseNet's grows before the backward."""
    own = [[*each] if isinstance(each, list) else each for each in args]
    return checkpoint(forward, *own, use_reentrant=False, **named)


def _parts(path: str) -> Iterable[str]:
    word = ""
    for letter in path:
        if letter.isdigit() == word.isdigit():
            word += letter
        else:
            yield word
            word = letter
    yield word


def training(
    model: nn.Module,
    loss: Callable[[], Tensor],
    optimizer: torch.optim.Optimizer,
    *,
    amp: bool = True,
    set_to_none: bool = True,
) -> Step:
    device = next(model.parameters()).device.type

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=set_to_none)
        with torch.autocast(device, BFLOAT16, enabled=amp):
            value = loss()
        torch.autograd.backward(value)
        optimizer.step()
        return value.detach()

    return step


def device(tiny: bool) -> str:
    return "cpu" if tiny else "cuda"


def adamw(model: nn.Module, tiny: bool, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, **({"foreach": True} | options))


def gpt(
    claim: Claim | None,
    tiny: bool,
    *,
    batch: int = 16,
    edit: Callable[[GPT, Claim], None] | None = None,
    compiled: bool = False,
    zeroes: bool = False,
    make: Callable[..., torch.optim.Optimizer] = adamw,
) -> Step:
    torch.manual_seed(0)
    vocabulary, width, layers, time = (64, 32, 2, 16) if tiny else (50304, 1024, 12, 1024)
    model = GPT(vocabulary, width, 2 if tiny else 16, layers, time).to(device(tiny))
    batch = 2 if tiny else batch
    if claim is not None and edit is not None:
        edit(model, claim)
    x, y = (torch.randint(0, vocabulary, (batch, time), device=device(tiny)) for _ in range(2))
    run = torch.compile(model) if compiled else model
    return training(
        model, lambda: run(x, y), make(model, tiny), set_to_none=not zeroes or claim is not None
    )


def _checkpoint(model: nn.Module, claim: Claim) -> None:
    checkpointed(model, claim.module or "")


def _chunk(model: GPT, claim: Claim) -> None:
    model.chunks = claim.figure("chunks")


def _linears_in_bfloat16(model: nn.Module, _: Claim) -> None:
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.to(BFLOAT16)


def gpt_8bit(claim: Claim | None, tiny: bool) -> Step:
    def make(model: nn.Module, tiny: bool) -> torch.optim.Optimizer:
        if claim is None:
            return adamw(model, tiny)
        made: torch.optim.Optimizer = import_module("torchao.optim").AdamW8bit(
            model.parameters(), lr=1e-4
        )
        return made

    return gpt(claim, tiny, batch=2, make=make)


def gpt_batch(claim: Claim | None, tiny: bool) -> Step:
    batch = 8 if claim is None else claim.figure("larger batch")
    return gpt(claim, tiny, batch=batch, compiled=True)


def image_model(
    name: str, claim: Claim | None, tiny: bool, *, batch: int, edits: bool = True
) -> Step:
    torch.manual_seed(0)
    timm = import_module("timm")
    model = timm.create_model(name).to(device(tiny)).to(memory_format=torch.channels_last)
    if claim is not None and edits:
        checkpointed(model, claim.module or "")
    x = torch.randn(batch, 3, 224, 224, device=device(tiny)).to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (batch,), device=device(tiny))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=True)
    return training(model, lambda: F.cross_entropy(model(x), y), optimizer)


def resnet_batch(claim: Claim | None, tiny: bool) -> Step:
    batch = 64 if claim is None else claim.figure("larger batch")
    return image_model("resnet50", claim, tiny, batch=batch, edits=False)


def bert(claim: Claim | None, tiny: bool) -> Step:
    torch.manual_seed(0)
    transformers = import_module("transformers")
    small = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2,
             "intermediate_size": 64, "vocab_size": 64}  # fmt: skip
    config = transformers.BertConfig(**(small if tiny else {}))
    model = transformers.BertForMaskedLM(config).to(device(tiny))
    if claim is not None:
        checkpointed(model, claim.module or "")
    x = torch.randint(0, config.vocab_size, (2 if tiny else 48, 512), device=device(tiny))
    return training(model, lambda: model(input_ids=x, labels=x).loss, adamw(model, tiny))


def llama(
    claim: Claim | None,
    tiny: bool,
    *,
    batch: int = 8,
    time: int = 1024,
    layers: int = 12,
    compiled: bool = False,
    edit: str = "",
    dtype: torch.dtype = BFLOAT16,
) -> Step:
    torch.manual_seed(0)
    transformers = import_module("transformers")
    sizes = {"hidden_size": 1536, "intermediate_size": 4096, "num_hidden_layers": layers,
             "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000}  # fmt: skip
    if tiny:
        sizes = {name: max(size // 256, 2) for name, size in sizes.items()}
        sizes["hidden_size"] = 32
    config = transformers.LlamaConfig(**sizes, use_cache=False)
    model = transformers.LlamaForCausalLM(config).to(device(tiny)).to(dtype)
    if claim is not None and edit == "checkpoint":
        checkpointed(model, claim.module or "")
    if tiny:
        batch, time = 2, 16
    x = torch.randint(0, config.vocab_size, (batch, time), device=device(tiny))
    is_chunked = claim is not None and edit == "chunk"
    run = torch.compile(model) if compiled else model

    def loss() -> Tensor:
        if claim is None or not is_chunked:
            value: Tensor = run(input_ids=x, labels=x).loss
            return value
        hidden = model.model(input_ids=x).last_hidden_state
        labels = F.pad(x, (0, 1), value=-100)[:, 1:].flatten()
        return chunked_loss(model.lm_head, hidden.flatten(0, 1), labels, claim.figure("chunks"))

    is_fused = claim is not None and edit == "fuse"
    options: dict[str, Any] = {"fused": True, "foreach": None} if is_fused else {}
    set_to_none = edit != "none" or claim is not None
    optimizer = adamw(model, tiny, **options)
    return training(model, loss, optimizer, amp=False, set_to_none=set_to_none)


def of_lengths(claim: Claim | None, tiny: bool) -> Step:
    """Texts of different lengths, batch after batch."""
    torch.manual_seed(0)
    transformers = import_module("transformers")
    config = transformers.LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
        num_key_value_heads=8, vocab_size=32000, use_cache=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).to(device(tiny)).to(BFLOAT16)
    lengths = [401, 1013, 607, 1499, 809, 1201, 509, 1709]
    batches = [torch.randint(0, 32000, (8, each), device=device(tiny)) for each in lengths]
    count = iter(range(10**9))

    def loss() -> Tensor:
        x = batches[next(count) % len(batches)]
        value: Tensor = model(input_ids=x, labels=x).loss
        return value

    return training(model, loss, adamw(model, tiny), amp=False)


def gpt_of(**options: Any) -> Callable[[Claim | None, bool], Step]:
    return partial(gpt, **options)


_PER_BLOCK = "checkpoint(block, x) for each"
_SEGMENTS = "expandable_segments:True"
_CHUNKS = "projection and loss in the chunks that are said"
TRIALS = (
    Trial("gpt_blocks", "kept_activations", gpt_of(edit=_checkpoint), "blocks.*", _PER_BLOCK),
    Trial("gpt_compiled_blocks", "kept_activations", gpt_of(edit=_checkpoint, compiled=True),
          "blocks.*", _PER_BLOCK),
    Trial("vit_blocks", "kept_activations", partial(image_model, "vit_base_patch16_224", batch=192),
          "blocks.*", _PER_BLOCK),
    Trial("resnet_blocks", "kept_activations", partial(image_model, "resnet50", batch=192),
          "layer*.*", _PER_BLOCK),
    Trial("bert_layers", "kept_activations", bert, "bert.encoder.layer.*", _PER_BLOCK),
    Trial("llama_layers", "kept_activations", partial(llama, edit="checkpoint"),
          "model.layers.*", _PER_BLOCK),
    Trial("gpt_loss", "chunked_loss", gpt_of(edit=_chunk), edit=_CHUNKS),
    Trial("llama_loss", "chunked_loss", partial(llama, edit="chunk", layers=4, batch=16),
          edit=_CHUNKS),
    Trial("gpt_zeroed", "kept_gradients", gpt_of(batch=4, zeroes=True),
          edit="zero_grad(set_to_none=True)"),
    Trial("llama_zeroed", "kept_gradients", partial(llama, edit="none", layers=10, batch=4),
          edit="zero_grad(set_to_none=True)"),
    Trial("gpt_weights", "weight_copies", gpt_of(batch=4, edit=_linears_in_bfloat16),
          edit="nn.Linear in bfloat16"),
    Trial("llama_foreach", "optimizer_temporaries",
          partial(llama, edit="fuse", layers=24, batch=1, time=512), edit="fused=True"),
    Trial("llama_foreach_float32", "optimizer_temporaries",
          partial(llama, edit="fuse", layers=12, batch=1, time=512, dtype=torch.float32),
          edit="fused=True"),
    Trial("gpt_8bit", "optimizer_8bit", gpt_8bit, edit="torchao.optim.AdamW8bit"),
    Trial("llama_lengths", "fragmented_memory", of_lengths, reserves=True, steps=8,
          edit=_SEGMENTS,
          environment=(("PYTORCH_CUDA_ALLOC_CONF", _SEGMENTS),)),
    Trial("gpt_segments", "fragmented_memory", gpt_of(), reserves=True, edit=_SEGMENTS,
          environment=(("PYTORCH_CUDA_ALLOC_CONF", _SEGMENTS),)),
    Trial("gpt_batch", "batch_size", gpt_batch, edit="the batch that is said to fit"),
    Trial("resnet_batch", "batch_size", resnet_batch, shapes=True,
          edit="the batch that is said to fit"),
)  # fmt: skip
