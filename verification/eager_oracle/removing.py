"""The second oracle: without one line of a program, its launches are gone, and no others.

Lines are told by their text: one that is removed leaves an empty statement in its place.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from profiler_ext.records.vocabulary import Phase
from verification.eager_oracle.draft import MARK, TWICE, Program
from verification.eager_oracle.programs import draw
from verification.eager_oracle.running import Run, run_program

_NOT_WITHOUT = TWICE | {
    "thread",
    "backward_elsewhere",
    "raised_into_a_generator",
    "hook_of_a_tensor",
    "without_gradients",
}
"""Blocks that need each of their lines, or whose other lines' gradients depend on it."""

_ONE_VALUE = re.compile(r"x = (?!.*\b[ab]\b).*")
"""A line that alone uses other values than the main one ends their gradients when it goes."""

Launches = Counter[tuple[str, str, str]]
"""Launches by the text of their line, phase and op. A sum of gradients is left out, for without
a line another line's gradient may be the last in it."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What came of removing a line.

    Attributes:
        seed: the program's.
        code: the line.
        own: how many launches it had.
        left: those of them that are there without it.
        gained: what other lines have more of without it.
        lost: what other lines have less of.
    """

    seed: int
    code: str
    own: int
    left: int
    gained: Launches
    lost: Launches

    @property
    def is_exact(self) -> bool:
        """All of the line's launches went, and no others came or went."""
        return self.own > 0 and not (self.left or self.gained or self.lost)


def remove(seed: int, folder: Path, device: str) -> Removal | None:
    """Run a program with a line and without it.

    Args:
        seed: draws the program and the line.
        folder: where the sources are to stand.
        device: where the tensors are.

    Returns:
        What came of it; ``None`` for a program in which no line can be spared.
    """
    program = draw(seed)
    lines = _spare(program)
    if not lines:
        return None
    at = random.Random(seed).choice(lines)
    texts = program.text.splitlines()
    code, indent = texts[at].strip(), len(texts[at]) - len(texts[at].lstrip())
    texts[at] = " " * indent + "pass"
    before = _launches(run_program(program.text, f"whole_{seed}", folder, device))
    after = _launches(run_program("\n".join(texts) + "\n", f"without_{seed}", folder, device))
    return _compared(seed, code, before, after)


def _compared(seed: int, code: str, before: Launches, after: Launches) -> Removal:
    def of_line(launches: Launches) -> Launches:
        return Counter({key: n for key, n in launches.items() if key[0] == code})

    own, left = of_line(before), of_line(after)
    others = before - own
    return Removal(seed, code, own.total(), left.total(), after - others, others - after)


def _spare(program: Program) -> list[int]:
    """Return the lines without which the program runs as well."""
    if _NOT_WITHOUT & set(program.blocks):
        return []
    texts = program.text.splitlines()
    marked = [at for at, text in enumerate(texts) if MARK in text]
    return [at for at in marked[:-1] if _ONE_VALUE.fullmatch(texts[at].strip())]


def _launches(run: Run) -> Launches:
    analysis = run.session.analysis
    places = [analysis.places[place] for place in analysis.shares.place.tolist()]
    return Counter(
        (place.code or str(place.gap), str(place.phase), place.aten_op or "")
        for place in places
        if place.phase != Phase.GRADIENT_ACCUMULATION
    )
