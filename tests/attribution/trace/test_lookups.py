from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler_ext.attribution.trace.lookups import distinct, numbered

_NUMBERS = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), max_size=12)


@given(st.lists(st.integers(-9, 9)))
def test_distinct_values_are_a_sorted_set(values):
    assert distinct(np.array(values, dtype=np.int64)).tolist() == sorted(set(values))


@given(_NUMBERS)
def test_rows_that_are_alike_in_all_columns_have_one_number(rows):
    columns = [
        np.array([row[at] for row in rows], dtype) for at, dtype in ((0, np.int64), (1, bool))
    ]
    ranks = {row: at for at, row in enumerate(sorted(set(rows)))}
    assert numbered(columns).tolist() == [ranks[row] for row in rows]
