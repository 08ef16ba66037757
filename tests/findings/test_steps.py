"""What is summed by step is what each step has of it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler_ext.findings.facts import sum_by_step, time_within
from profiler_ext.records.analysis import Step

STEPS = (Step.on_cpu(4, 100, 200), Step.on_cpu(2, 200, 260), Step.on_cpu(4, 300, 400))
SPANS = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 200)), max_size=20)


def test_an_amount_is_summed_by_the_number_of_its_step() -> None:
    number, amount = np.array([2, 4, 3, 4, -1]), np.array([1, 10, 100, 1000, 10000])
    assert sum_by_step(STEPS, number, amount) == [1010, 1, 1010]
    assert sum_by_step((), number, amount) == []
    assert sum_by_step(STEPS, number[:0], amount[:0]) == [0, 0, 0]


@given(SPANS)
def test_spans_are_within_a_part_for_as_long_as_they_overlap_it(spans) -> None:
    begins = np.array([begin for begin, _ in spans], np.int64)
    ends = np.array([begin + length for begin, length in spans], np.int64)
    wanted = [
        sum(max(0, min(b + n, s.end_ns) - max(b, s.start_ns)) for b, n in spans) for s in STEPS
    ]
    assert time_within([(s.start_ns, s.end_ns) for s in STEPS], begins, ends) == wanted
