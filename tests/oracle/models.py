"""Owns the drawing of a random model from its seed."""

from __future__ import annotations

import random

from tests.oracle import arranging, layering, pointwise, reducing
from tests.oracle.draft import Draft, Model

BLOCKS = (*pointwise.BLOCKS, *reducing.BLOCKS, *arranging.BLOCKS, *layering.BLOCKS)
_SIZES = ((64, 128), (8, 32), (32, 4096), (1024, 1024), (16, 65536))
_SIZE_WEIGHTS = (6, 4, 2, 2, 1)
_OPTIONS = ("{}", "{'dynamic': True}", "{'options': {'combo_kernels': True}}")
_OPTION_WEIGHTS = (7, 2, 1)


def draw(seed: int) -> Model:
    """Return the random model of a seed.

    The first block goes round all there are, so that a run of seeds covers every one.
    """
    rng = random.Random(seed)
    rows, columns = rng.choices(_SIZES, _SIZE_WEIGHTS)[0]
    draft = Draft(rng, rows, columns)
    blocks = [BLOCKS[seed % len(BLOCKS)], *rng.choices(BLOCKS, k=rng.randint(1, 3))]
    rng.shuffle(blocks)
    x = draft.weight(rows, columns)
    for block in blocks:
        x = block(draft, x)
    text = draft.text(x, rng.choices(_OPTIONS, _OPTION_WEIGHTS)[0])
    return Model(seed, tuple(block.__name__ for block in blocks), text)
