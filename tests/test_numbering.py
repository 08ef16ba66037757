from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler_ext.records.events import first_rows, numbered, ranks, sorted_distinct

_ROWS = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), max_size=12)
_CLOSE_OR_FAR = st.lists(st.one_of(st.integers(-9, 9), st.integers(-(2**62), 2**62)), max_size=12)


def _column(values, dtype=np.int64):
    return np.array(values, dtype)


@given(_CLOSE_OR_FAR)
def test_distinct_values_are_a_sorted_set(values):
    assert sorted_distinct(_column(values)).tolist() == sorted(set(values))


@given(_CLOSE_OR_FAR)
def test_ranks_lead_from_each_row_to_its_value(values):
    distinct, own = ranks(_column(values))
    assert distinct.tolist() == sorted(set(values))
    assert distinct[own].tolist() == values


@given(_ROWS)
def test_rows_that_are_alike_in_all_columns_have_one_number(rows):
    columns = [
        _column([row[at] for row in rows], dtype) for at, dtype in ((0, np.int64), (1, bool))
    ]
    order = {row: at for at, row in enumerate(sorted(set(rows)))}
    assert numbered(columns).tolist() == [order[row] for row in rows]


@given(_ROWS)
def test_each_number_has_the_first_row_that_has_it(rows):
    numbers = numbered([_column([row[0] for row in rows])])
    firsts = [numbers.tolist().index(each) for each in range(len(set(numbers.tolist())))]
    assert first_rows(numbers).tolist() == firsts
