"""The pairs that every longest common subsequence has, against the whole table of lengths."""

from __future__ import annotations

import numpy as np
import pytest

from profiler_ext.attribution.alignment import aligning
from profiler_ext.attribution.alignment.aligning import Names, agreed_pairs


def _names(rows, columns, kinds=None) -> Names:
    kinds = np.zeros(len(rows), np.int64) if kinds is None else kinds
    return Names(np.array(rows, np.int64), kinds, np.atleast_2d(np.array(columns, np.int64)))


def _whole(names: Names) -> list[tuple[int, int]]:
    """Do it with a table of all pairs."""
    table = names.columns[names.kinds] == names.rows[:, None]
    before = _lengths(table)
    after = _lengths(table[::-1, ::-1])[::-1, ::-1]
    through = table & (before[:-1, :-1] + after[1:, 1:] + 1 == before[-1, -1])
    left_out = (before[:-1] + after[1:] == before[-1, -1]).any(axis=1)
    certain = np.flatnonzero((through.sum(axis=1) == 1) & ~left_out)
    return [(int(row), int(through[row].argmax())) for row in certain]


def _lengths(table):
    lengths = np.zeros((table.shape[0] + 1, table.shape[1] + 1), np.int64)
    for row, column in np.ndindex(*table.shape):
        longer = lengths[row, column] + 1 if table[row, column] else 0
        best = max(lengths[row, column + 1], lengths[row + 1, column], longer)
        lengths[row + 1, column + 1] = best
    return lengths


@pytest.mark.parametrize("margin", [1, 2, 32])
@pytest.mark.parametrize("seed", range(40))
def test_a_band_finds_what_the_whole_table_finds(seed, margin, monkeypatch):
    monkeypatch.setattr(aligning, "_FIRST_MARGIN", margin)
    random = np.random.default_rng(seed)
    columns = random.integers(0, random.integers(2, 30), size=(2, random.integers(1, 40)))
    rows = columns[0].copy()
    kinds = random.integers(0, 2, size=len(rows))
    rows[kinds == 1] = columns[1][kinds == 1]
    kept = random.random(len(rows)) < random.random()
    rows, kinds = rows[kept], kinds[kept]
    if seed % 3 == 0:
        order = random.permutation(len(rows))
        rows, kinds = rows[order], kinds[order]
    names = Names(rows, kinds, columns)
    assert agreed_pairs(names) == _whole(names)
    more = Names(np.repeat(rows, 2), np.repeat(kinds, 2), columns)
    assert agreed_pairs(more) == _whole(more)


def test_of_equal_names_next_to_each_other_none_is_certain():
    assert agreed_pairs(_names([1, 1, 2], [1, 2])) == [(2, 1)]
    assert agreed_pairs(_names([], [1, 2])) == []
    assert agreed_pairs(_names([1], [])) == []


def test_long_orders_that_differ_little_are_compared():
    columns = np.arange(20_000)
    rows = np.delete(columns, [5, 700, 19_000])
    assert agreed_pairs(_names(rows, columns)) == [(at, int(name)) for at, name in enumerate(rows)]


def test_long_orders_that_differ_in_all_are_not_decided():
    columns = np.arange(6_000)
    assert agreed_pairs(_names(columns[::-1], columns)) is None
