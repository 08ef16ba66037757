"""Trials written when rules had been mended by all others: to these nothing was fitted."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verification.memory_peaks.programs import Model, hugging_face

from .mended import in_chunks, per_block, timm, trial, weights_in_bfloat16
from .programs import adamw

__all__ = ["UNFITTED"]

_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
opt = partial(
    hugging_face, "OPT", "ForCausalLM", batch=(16, 1024),
    sizes={"hidden_size": 1024, "ffn_dim": 4096, "num_hidden_layers": 12,
           "num_attention_heads": 16, "word_embed_proj_dim": 1024, "vocab_size": 50272},
    small=_SMALL | {"ffn_dim": 64, "word_embed_proj_dim": 32},
)  # fmt: skip
gpt2 = partial(
    hugging_face, "GPT2", "LMHeadModel", batch=(24, 1024), sizes={},
    small={"n_embd": 32, "n_layer": 2, "n_head": 2},
)  # fmt: skip
electra = partial(
    hugging_face, "Electra", "ForMaskedLM", batch=(96, 512),
    sizes={"embedding_size": 768, "hidden_size": 768, "intermediate_size": 3072,
           "num_attention_heads": 12},
    small=_SMALL | {"embedding_size": 32, "intermediate_size": 64},
)  # fmt: skip
llama = partial(
    hugging_face, "Llama", "ForCausalLM", batch=(12, 1024),
    sizes={"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 16,
           "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 32000},
    small=_SMALL | {"intermediate_size": 64, "num_key_value_heads": 2},
)  # fmt: skip
convnext = partial(timm, small={"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)})
beit = partial(timm, "beit_large_patch16_224", small={"depth": 2, "embed_dim": 32, "num_heads": 2})


def wide(tiny: bool) -> Model:
    """Few and large layers, on a batch that is small for them."""
    width, layers, batch = (32, 2, 4) if tiny else (8192, 8, 512)
    made = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        return F.mse_loss(model(x).float(), x)

    return Model(made, loss, (torch.randn(batch, width),))


def _gpt2_chunks(model: Any, chunks: int, x: Tensor) -> Tensor:
    hidden = model.transformer(input_ids=x).last_hidden_state.flatten(0, 1)
    labels = F.pad(x, (0, 1), value=-100)[:, 1:].flatten()
    return in_chunks(lambda h: model.lm_head(h).float(), hidden, labels, chunks)


def _electra_chunks(model: Any, chunks: int, x: Tensor) -> Tensor:
    hidden = model.generator_predictions(model.electra(input_ids=x).last_hidden_state)
    return in_chunks(model.generator_lm_head, hidden.flatten(0, 1), x.flatten(), chunks)


UNFITTED = (
    trial("convnext_base", "kept_activations", edit=per_block, blocks="stages.*.blocks.*",
          family=partial(convnext, "convnext_base", batch=192)),
    trial("opt_layers", "kept_activations", family=opt, edit=per_block,
          blocks="model.decoder.layers.*"),
    trial("gpt2_chunks", "chunked_loss", family=gpt2, chunked=_gpt2_chunks),
    trial("electra_chunks", "chunked_loss", family=electra, chunked=_electra_chunks),
    trial("beit_zeroed", "kept_gradients", family=partial(beit, batch=64), zeroes=True),
    trial("llama_weights", "weight_copies", family=llama, edit=weights_in_bfloat16),
    trial("wide_foreach", "optimizer_temporaries", family=wide,
          edited_optimizer=partial(adamw, fused=True, foreach=None)),
    trial("convnext_batch", "batch_size", shapes=True,
          family=partial(convnext, "convnext_tiny", batch=48),
          batch_of=lambda claim: claim.figure("larger batch")),
)  # fmt: skip
"""Of each rule that claims a time, another model."""
