"""Owns which slices share what they say, so that it is encoded once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import numpy as np

from profiler_ext.exporters.perfetto.packets import Constant
from profiler_ext.records import Ints


class _Numbers(dict[Hashable, int]):
    """The number that each key was given when it was first seen."""

    def __missing__(self, key: Hashable) -> int:
        self[key] = number = len(self)
        return number


class Shared:
    """What is the same for rows with the same key.

    Attributes:
        constants: what they share, encoded.
        of_row: which of it each row has.
    """

    def __init__(self, keys: Iterable[Hashable], made: Callable[[int], Constant]) -> None:
        """Encode it.

        Args:
            keys: the key of each row.
            made: encodes what a row shares with others of its key.
        """
        self.of_row: Ints = np.fromiter(map(_Numbers().__getitem__, keys), np.int64)
        firsts = np.unique(self.of_row, return_index=True)[1]
        self.constants = [made(row) for row in firsts.tolist()]
