"""Models of transformers as they are served: a token from a static cache, whole or of one rank.

``torchrun --nproc-per-node 2 -m verification.replays --one decoding_llama --out DIR`` splits the
products among GPUs; each rank has a folder in DIR.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from verification.flaws.programs.program import Sizes, compiled, seeded

__all__ = ["as_rank", "decoding_llama", "decoding_moe"]

_COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_ROWS = ("o_proj", "down_proj")


def as_rank(out: Path) -> Path:
    """Join the other ranks, if there are some; return the folder of this one."""
    if "RANK" not in os.environ:
        return out
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    own = out / f"rank{rank}"
    own.mkdir(parents=True, exist_ok=True)
    return own


def decoding_llama(sizes: Sizes, capture: Callable[[Any], Any]) -> Iterator[Callable[[], object]]:
    """A Llama that is compiled whole; under ``torchrun`` its products are split among ranks."""
    from transformers import LlamaConfig

    config = LlamaConfig(**_options(sizes))
    yield from _decoded(config, sizes, capture)


def decoding_moe(sizes: Sizes, capture: Callable[[Any], Any]) -> Iterator[Callable[[], object]]:
    """A Qwen with eight experts; only its attention is split among ranks."""
    from transformers import Qwen3MoeConfig

    config = Qwen3MoeConfig(
        **_options(sizes),
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=sizes.of(704, 16),
        head_dim=sizes.of(64, 8),
    )
    yield from _decoded(config, sizes, capture)


def _options(sizes: Sizes) -> dict[str, Any]:
    return {
        "vocab_size": sizes.of(32_000, 64),
        "hidden_size": sizes.of(1024, 32),
        "intermediate_size": sizes.of(2816, 64),
        "num_hidden_layers": sizes.of(8, 2),
        "num_attention_heads": sizes.of(16, 4),
        "num_key_value_heads": sizes.of(8, 2),
        "max_position_embeddings": 512,
    }


def _decoded(
    config: Any, sizes: Sizes, capture: Callable[[Any], Any]
) -> Iterator[Callable[[], object]]:
    from transformers import AutoModelForCausalLM, StaticCache

    model = seeded(lambda: AutoModelForCausalLM.from_config(config), sizes)
    model = model.to(sizes.of(torch.bfloat16, torch.float32)).eval()
    if "RANK" in os.environ:
        _split(model, config)
    cache = StaticCache(config=config, max_cache_len=256)
    tokens = torch.zeros(sizes.of(8, 2), 1, dtype=torch.long, device=sizes.device)
    run = compiled(lambda: _logits(model, tokens, cache), sizes)

    @torch.no_grad()
    def step() -> None:
        tokens.copy_(run()[:, -1:].argmax(-1))

    yield step
    yield capture(step).replay


def _logits(model: nn.Module, tokens: Tensor, cache: Any) -> Tensor:
    out: Tensor = model(input_ids=tokens, past_key_values=cache, use_cache=True).logits
    return out


def _split(model: nn.Module, config: Any) -> None:
    """Give each rank its columns and rows, and all-reduce after the rows."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),))
    plan: dict[str, Any] = {}
    for name, each in model.named_modules():
        last = name.rpartition(".")[2]
        if isinstance(each, nn.Linear) and last in _COLUMNS + _ROWS:
            plan[name] = ColwiseParallel() if last in _COLUMNS else RowwiseParallel()
    parallelize_module(model, mesh, plan)
    config.num_key_value_heads //= mesh.size()
