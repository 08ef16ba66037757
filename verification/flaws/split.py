"""Divides the flaws into a half to write rules on, and what the rules are judged by."""

from __future__ import annotations

import json
import random
from pathlib import Path

from .catalogue import FIRST, LATER

__all__ = ["SETS", "SPLIT", "draw", "drawn", "read"]

SPLIT = Path(__file__).with_name("split.json")
SEED = 2026
SETS = ("developing", "held_out", *(f"held_out_{at}" for at in range(2, len(LATER) + 2)))


def draw(names: list[str], seed: int) -> dict[str, list[str]]:
    """The two halves, each sorted by name."""
    developing = sorted(random.Random(seed).sample(sorted(names), len(names) // 2))
    return {"developing": developing, "held_out": sorted(set(names) - set(developing))}


def drawn() -> dict[str, list[str]]:
    """The halves of the first collection, and all of the others."""
    later = {f"held_out_{at}": sorted(each) for at, each in enumerate(LATER, 2)}
    return draw(list(FIRST), SEED) | later


def read() -> dict[str, list[str]]:
    """The sets as they were before any of their flaws was run."""
    stored = json.loads(SPLIT.read_text())
    return {name: stored[name] for name in SETS}


if __name__ == "__main__":
    SPLIT.write_text(json.dumps({"seed": SEED, **drawn()}, indent=2) + "\n")
