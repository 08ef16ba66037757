"""A call's launches that a stream ran out of order are those of the definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler_ext.attribution.alignment.verification import StreamOrder
from profiler_ext.attribution.trace.launches import EnqueuedLaunches
from profiler_ext.records.events import Thread
from tests.handmade import Mark, trace

_LAUNCHES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12)), min_size=1, max_size=10)


def plain(queues: list[int], starts: list[int], own: list[int]) -> set[int]:
    """Return those that began before an earlier one, or after a later one, of a window."""
    wrong = set[int]()
    for queue in set(queues):
        of_queue = [at for at, each in enumerate(queues) if each == queue]
        places = [of_queue.index(at) for at in own if queues[at] == queue]
        window = of_queue[max(min(places) - 1, 0) : max(places) + 2] if places else []
        for place, at in enumerate(window):
            is_late = any(starts[other] < starts[at] for other in window[place + 1 :])
            is_early = any(starts[other] > starts[at] for other in window[:place])
            if is_late or is_early:
                wrong.add(at)
    return wrong.intersection(own)


@given(_LAUNCHES, st.data())
def test_what_ran_out_of_order_is_what_the_definition_says(drawn, data):
    queues, starts = (list(column) for column in zip(*drawn, strict=True))
    rows = np.arange(len(drawn))
    events = trace([Mark("k", "kernel", Thread(0, 7), start, 1) for start in starts]).events
    enqueued = EnqueuedLaunches(rows, rows, rows, rows, np.array(queues), on_cpu=False)
    first = data.draw(st.integers(0, len(drawn) - 1))
    own = np.arange(first, data.draw(st.integers(first, len(drawn) - 1)) + 1)
    found = StreamOrder(events, enqueued).out_of_order_in(own)
    assert set(own[found].tolist()) == plain(queues, starts, own.tolist())
