"""The constants that mark lines: how they are drawn, and how code is searched for them.

Each is an odd multiple of 2**-12, so it is exact in float32 and prints with twelve decimals,
in Triton and C++ source alike; none is the negative, the complement or the product of others.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_STEP = 2.0**-12
_NUMBER = re.compile(r"(?<![\w.])\d+\.\d{12}(?!\d)")
_FACTOR = range(1, 2047, 2)  # 1.0002 to 1.4998
_PROBABILITY = range(2049, 3071, 2)  # 0.5002 to 0.7498


class Constants:
    """Hands out each constant once."""

    def __init__(self, rng: random.Random) -> None:
        self._factors = _shuffled(rng, _FACTOR)
        self._probabilities = _shuffled(rng, _PROBABILITY)

    def factor(self) -> str:
        """Return a number near one, to multiply by or to add."""
        return repr(1.0 + next(self._factors) * _STEP)

    def probability(self) -> str:
        """Return a number between a half and three quarters."""
        return repr(next(self._probabilities) * _STEP)


def _shuffled(rng: random.Random, steps: range) -> Iterator[int]:
    return iter(rng.sample(steps, len(steps)))


def constants_in(code: str) -> frozenset[str]:
    """Return the numbers in a text that have the shape of a constant."""
    return frozenset(_NUMBER.findall(code))


@dataclass(frozen=True, slots=True)
class MarkedLines:
    """Which line of a model's file bears which constant."""

    line_of: Mapping[str, int]

    @classmethod
    def read(cls, text: str) -> MarkedLines:
        """Find the constants of a file.

        Raises:
            ValueError: A constant stands on two lines.
        """
        found: dict[str, int] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            for constant in constants_in(line):
                if constant in found:
                    raise ValueError(f"{constant} stands on lines {found[constant]} and {number}")
                found[constant] = number
        return cls(found)
