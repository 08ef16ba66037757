"""Owns which slices share what they say, so that it is encoded once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np

from profiler_ext.exporters.perfetto.byte_columns import ByteDictionary, alike
from profiler_ext.records import Codes, Ints


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

    def __init__(
        self,
        keys: Iterable[Hashable],
        encode: Callable[[int], bytes],
        codes: Sequence[Codes | Ints] = (),
    ) -> None:
        """Encode it.

        Args:
            keys: the key of each row.
            made: encodes what a row shares with others of its key.
            codes: rows with the same key must be alike in these columns, too.
        """
        numbers = np.fromiter(map(_Numbers().__getitem__, keys), np.int64)
        firsts, self.of_row = _kinds([*codes, numbers])
        self.constants = ByteDictionary([encode(row) for row in firsts.tolist()])


def concatenated(parts_shared: Sequence[Shared]) -> tuple[ByteDictionary, Ints]:
    """Return what rows share one after the other; of the whole texts there are few again.

    Args:
        told: what they share.

    Returns:
        The whole texts, and which of them each row has.
    """
    firsts, of_row = _kinds([each.of_row for each in parts_shared])
    parts = [each.constants.chosen(each.of_row[firsts])[0] for each in parts_shared]
    return ByteDictionary([b"".join(each) for each in zip(*parts, strict=True)]), of_row


def _kinds(columns: Sequence[Codes | Ints]) -> tuple[Ints, Ints]:
    """Return the first row of each kind of rows that are alike, and of which kind each row is."""
    numbers = alike(columns, len(columns[-1]))
    _, firsts, kinds = np.unique(numbers, return_index=True, return_inverse=True)
    return firsts, kinds
