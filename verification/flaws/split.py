"""Divides the flaws into a half to write rules on and a half to judge them by."""

from __future__ import annotations

import json
import random
from pathlib import Path

from .catalogue import FLAWS

__all__ = ["SPLIT", "draw", "read"]

SPLIT = Path(__file__).with_name("split.json")
SEED = 2026


def draw(names: list[str], seed: int) -> dict[str, list[str]]:
    """The two halves, each sorted by name."""
    developing = sorted(random.Random(seed).sample(sorted(names), len(names) // 2))
    return {"developing": developing, "held_out": sorted(set(names) - set(developing))}


def read() -> dict[str, list[str]]:
    """The halves as they were drawn before any flaw was run."""
    stored = json.loads(SPLIT.read_text())
    return {half: stored[half] for half in ("developing", "held_out")}


if __name__ == "__main__":
    SPLIT.write_text(json.dumps({"seed": SEED, **draw(list(FLAWS), SEED)}, indent=2) + "\n")
