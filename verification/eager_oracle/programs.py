"""The drawing of a random program from its seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext

from verification.eager_oracle import calling, combining, differentiating, modelling
from verification.eager_oracle.draft import TWICE, Draft, Program

Block = Callable[[Draft], list[str]]
BLOCKS: tuple[Block, ...] = (
    *calling.BLOCKS,
    *differentiating.BLOCKS,
    *modelling.BLOCKS,
    *combining.BLOCKS,
)


def draw(seed: int) -> Program:
    """Return the random program of a seed; a run of seeds covers every block."""
    rng = random.Random(seed)
    blocks = [BLOCKS[seed % len(BLOCKS)], *rng.choices(BLOCKS, k=rng.randint(2, 4))]
    return program(seed, tuple(rng.sample(blocks, len(blocks))))


def program(seed: int, blocks: tuple[Block, ...]) -> Program:
    """Return the program of some blocks.

    Args:
        seed: draws their lines.
        blocks: the blocks, in order.
    """
    draft = Draft(random.Random(seed))
    names = {block.__name__ for block in blocks}
    with draft.without("scaled_dot_product") if names & TWICE else nullcontext():
        body = [line for block in blocks for line in block(draft)]
    text = draft.text(body)
    return Program(seed, tuple(block.__name__ for block in blocks), text, draft.modules)
