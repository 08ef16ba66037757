"""The drawing of a random model from its seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from verification.oracle import (
    arranging,
    differentiating,
    layering,
    nesting,
    pointwise,
    reducing,
    training,
)
from verification.oracle.draft import Draft, Model

Blocks = tuple[Callable[[Draft, str], str], ...]
BLOCKS: Blocks = (
    *pointwise.BLOCKS,
    *reducing.BLOCKS,
    *arranging.BLOCKS,
    *layering.BLOCKS,
    *nesting.BLOCKS,
    *training.BLOCKS,
    *differentiating.BLOCKS,
)
ON_A_GPU: Blocks = (*nesting.ON_A_GPU, *training.ON_A_GPU)
_SIZES = ((64, 128), (8, 32), (32, 4096), (1024, 1024), (16, 65536))
_SIZE_WEIGHTS = (6, 4, 2, 2, 1)
_OPTIONS = ("{}", "{'dynamic': True}", "{'options': {'combo_kernels': True}}")
_TEMPLATES = (
    "{'options': {'max_autotune_gemm': True, 'max_autotune_gemm_backends': 'TRITON', "
    "'benchmark_epilogue_fusion': False, 'test_configs.max_mm_configs': 1}}"
)
_OPTIONS_ON_A_GPU = (_TEMPLATES,)
_OPTION_WEIGHTS = (7, 2, 1, 3)


def draw(seed: int, device: str = "cpu") -> Model:
    """Return the random model of a seed.

    The first block goes round all there are, so that a run of seeds covers every one. On a
    GPU there are more: what has no code elsewhere.
    """
    on_a_gpu = device == "cuda"
    return _draw(seed, BLOCKS + ON_A_GPU * on_a_gpu, _OPTIONS + _OPTIONS_ON_A_GPU * on_a_gpu)


def _draw(seed: int, all_blocks: Blocks, options: tuple[str, ...]) -> Model:
    rng = random.Random(seed)
    rows, columns = rng.choices(_SIZES, _SIZE_WEIGHTS)[0]
    draft = Draft(rng, rows, columns)
    blocks = [all_blocks[seed % len(all_blocks)], *rng.choices(all_blocks, k=rng.randint(1, 3))]
    rng.shuffle(blocks)
    x = draft.weight(rows, columns)
    for block in blocks:
        x = block(draft, x)
    text = draft.text(x, rng.choices(options, _OPTION_WEIGHTS[: len(options)])[0])
    return Model(seed, tuple(block.__name__ for block in blocks), text)
