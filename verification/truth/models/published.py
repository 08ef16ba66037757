"""The models of transformers: tiny ones of each architecture, from its configuration."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from verification.truth.models.making import Made, Make

_TEXT = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "use_cache": False,
}
_IMAGE = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_HEADS = {"num_key_value_heads": 1}
_EXPERTS = {"num_local_experts": 3, "num_experts": 3, "num_experts_per_tok": 2}
_DECODERS: dict[str, dict[str, Any]] = {
    "Llama": _HEADS,
    "Qwen2": _HEADS,
    "Qwen3": {**_HEADS, "head_dim": 8},
    "Qwen3Moe": {**_HEADS, **_EXPERTS, "head_dim": 8, "moe_intermediate_size": 8},
    "Gemma": {**_HEADS, "head_dim": 8},
    "Gemma2": {**_HEADS, "head_dim": 8},
    "Mistral": _HEADS,
    "Mixtral": {**_HEADS, **_EXPERTS},
    "Olmoe": {**_HEADS, **_EXPERTS},
    "Phi": {"hidden_dropout": 0.0},
    "Phi3": _HEADS,
    "Olmo2": _HEADS,
    "StableLm": _HEADS,
    "Cohere": _HEADS,
    "Glm": {**_HEADS, "head_dim": 8},
    "Granite": _HEADS,
    "Nemotron": _HEADS,
    "Persimmon": {},
    "Falcon": {"alibi": True},
    "GPTNeoX": {},
    "GPTJ": {"n_embd": 16, "n_layer": 2, "n_head": 2, "rotary_dim": 4, "n_positions": 32},
    "GPTBigCode": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32},
    "Bloom": {"n_layer": 2, "n_head": 2},
    "OPT": {"ffn_dim": 24, "word_embed_proj_dim": 16, "dropout": 0.0},
    "Mamba": {"state_size": 4},
    "Mamba2": {"num_heads": 4, "head_dim": 8, "state_size": 4, "n_groups": 1},
    "FalconMamba": {"state_size": 4},
    "Rwkv": {},
}
"""By its prefix, what the configuration of a causal language model has besides."""

_MASKED = ("Bert", "Roberta", "Electra", "Albert", "ConvBert", "MPNet", "RoFormer", "FNet")
_VISION: dict[str, dict[str, Any]] = {
    "ViT": _IMAGE,
    "DeiT": _IMAGE,
    "Beit": _IMAGE,
    "Dinov2": {**_IMAGE, "mlp_ratio": 2},
    "ConvNext": {"hidden_sizes": [8, 16], "depths": [1, 2], "num_stages": 2},
    "ResNet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2]},
    "RegNet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 8},
    "Swin": {
        "image_size": 16,
        "patch_size": 4,
        "embed_dim": 8,
        "depths": [2],
        "num_heads": [2],
        "window_size": 4,
    },
    "PoolFormer": {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]},
}
_SEQUENCES: dict[str, dict[str, Any]] = {
    "T5": {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2},
    "Bart": {"d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24},
    "Pegasus": {"d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24},
}


class Outputs(torch.nn.Module):
    """A published model that takes tensors in the order of their names, and returns its scores."""

    def __init__(self, model: torch.nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model.train(), names

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.names, values, strict=True))).logits


def _made(prefix: str, suffix: str, options: dict[str, Any], given: Callable[[], Any]) -> Made:
    import transformers

    configuration = getattr(transformers, f"{prefix}Config")(**options)
    model = getattr(transformers, f"{prefix}{suffix}")(configuration)
    inputs = given()
    return Outputs(model, tuple(inputs)), tuple(inputs.values())


def _tokens() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(2, 50, (2, 7))}


def _token_pairs() -> dict[str, torch.Tensor]:
    return {**_tokens(), "decoder_input_ids": torch.randint(2, 50, (2, 5))}


def _pixels(size: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(2, 3, size, size)}


def _all() -> dict[str, Make]:
    models: dict[str, Make] = {}
    for prefix, more in _DECODERS.items():
        models[prefix] = partial(_made, prefix, "ForCausalLM", {**_TEXT, **more}, _tokens)
    for prefix in _MASKED:
        options = {**_TEXT, **_NO_DROPOUT}
        models[prefix] = partial(_made, prefix, "ForMaskedLM", options, _tokens)
    for prefix, options in _VISION.items():
        given = partial(_pixels, options.get("image_size", 32))
        options = {**options, **_NO_DROPOUT}
        models[prefix] = partial(_made, prefix, "ForImageClassification", options, given)
    for prefix, more in _SEQUENCES.items():
        layers = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in _SIDES}
        options = {"vocab_size": 50, "dropout": 0.0, "dropout_rate": 0.0, **layers, **more}
        options |= {"decoder_start_token_id": 0, "use_cache": False}
        models[prefix] = partial(_made, prefix, "ForConditionalGeneration", options, _token_pairs)
    return models


_SIDES = (("layers", 1), ("attention_heads", 2))
MODELS = _all() if importlib.util.find_spec("transformers") else {}
"""By prefix, what makes the model and what it is called on."""
