from __future__ import annotations

from itertools import takewhile

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.attribution.trace.nesting import nest
from profiler_ext.records.events import Thread
from tests.attribution.timeline import AUTOGRAD, MAIN
from tests.handmade import Mark, trace


def _op(name, start_ns, duration_ns, thread=MAIN, category="cpu_op", **args):
    return Mark(name, category, thread, start_ns, duration_ns, args)


def _nest(*marks):
    return nest(trace(marks).events)


def _flags(*rows, length):
    wanted = np.zeros(length, dtype=np.bool_)
    wanted[list(rows)] = True
    return wanted


def test_the_parent_is_the_innermost_event_around():
    found = _nest(
        _op("c", 30, 10), _op("a", 0, 100), _op("b", 20, 50), _op("d", 80, 10), _op("e", 100, 5)
    )
    assert found.parent.tolist() == [2, NO_ROW, 1, 1, NO_ROW]
    assert found.depth.tolist() == [2, 0, 1, 1, 0]


def test_threads_do_not_mix():
    found = _nest(_op("a", 0, 100), _op("b", 10, 10, AUTOGRAD))
    assert found.parent.tolist() == [NO_ROW, NO_ROW]


def test_of_events_that_start_together_the_longer_then_the_older_is_outside():
    ids = [{"External id": n} for n in (3, 1, 2)]
    found = _nest(_op("c", 0, 5, **ids[0]), _op("a", 0, 5, **ids[1]), _op("b", 0, 5, **ids[2]))
    assert found.parent.tolist() == [2, NO_ROW, 1]
    assert _nest(_op("inner", 0, 5), _op("outer", 0, 9)).parent.tolist() == [1, NO_ROW]


def test_a_runtime_call_that_juts_out_belongs_where_it_starts_and_holds_nothing():
    found = _nest(
        _op("op", 0, 10),
        _op("cuLaunchKernel", 5, 20, category="cuda_driver"),
        _op("next", 12, 5),
    )
    assert found.parent.tolist() == [NO_ROW, 0, NO_ROW]


def test_an_event_that_outlives_its_opener_is_not_inside_it():
    found = _nest(_op("step", 0, 100), _op("a", 10, 20), _op("b", 20, 50), _op("c", 60, 5))
    assert found.parent.tolist() == [NO_ROW, 0, 0, 2]


def test_device_events_and_python_functions_are_no_part_of_the_nesting():
    found = _nest(
        _op("op", 0, 10),
        _op("f", 1, 8, category="python_function"),
        _op("kernel", 2, 2, Thread(0, 7), "kernel"),
        _op("inner", 3, 2),
    )
    assert found.parent.tolist() == [NO_ROW, NO_ROW, NO_ROW, 0]
    assert found.depth.tolist() == [0, NO_ROW, NO_ROW, 1]


def test_questions_up_and_down_the_chain():
    found = _nest(_op("a", 0, 100), _op("b", 1, 90), _op("c", 2, 80), _op("d", 3, 70))
    assert found.nearest(_flags(0, 2, length=4)).tolist() == [0, 0, 2, 2]
    assert found.outermost(_flags(0, 2, length=4), _flags(length=4)).tolist() == [0, 0, 0, 0]
    assert found.outermost(_flags(1, 3, length=4), _flags(2, length=4)).tolist() == [
        NO_ROW,
        1,
        NO_ROW,
        3,
    ]
    assert found.holds(_flags(2, length=4)).tolist() == [True, True, False, False]


def test_a_trace_without_events_nests():
    found = _nest()
    assert (found.parent.tolist(), found.depth.tolist()) == ([], [])


def test_what_holds_what_is_reported_at_any_depth():
    depth = 3_000
    found = _nest(*(_op("op", n, 2 * (depth - n)) for n in range(depth)))
    middle, last = _flags(depth // 2, length=depth), _flags(depth - 1, length=depth)
    inner = [NO_ROW] * (depth // 2) + [depth // 2] * (depth // 2)
    assert found.depth.tolist() == list(range(depth))
    assert found.nearest(middle).tolist() == inner
    assert found.outermost(middle | last, within=_flags(length=depth)).tolist() == inner
    assert found.outermost(last, within=middle).tolist() == [NO_ROW] * (depth - 1) + [depth - 1]
    assert np.flatnonzero(found.holds(middle)).tolist() == list(range(depth // 2))


_CATEGORIES = st.sampled_from(("cpu_op", "user_annotation", "cuda_runtime", "kernel"))
_SPANS = st.tuples(
    st.integers(0, 12), st.integers(0, 9), _CATEGORIES, st.sampled_from((MAIN, AUTOGRAD))
)


def _plain_parent(marks: list[Mark], row: int) -> int:
    """Return the last that began before an event, ends no earlier, and holds anything."""
    own = marks[row]
    is_call = own.category == "cuda_runtime"
    order = sorted(
        range(len(marks)),
        key=lambda at: (
            marks[at].start_ns,
            marks[at].category == "cuda_runtime",
            -marks[at].duration_ns,
        ),
    )
    least = own.start_ns + (1 if is_call else max(own.duration_ns, 1))
    before = [
        at
        for at in order[: order.index(row)]
        if marks[at].thread == own.thread
        and marks[at].category in ("cpu_op", "user_annotation")
        and marks[at].start_ns + marks[at].duration_ns >= least
    ]
    return before[-1] if before and own.category != "kernel" else NO_ROW


@given(st.lists(_SPANS, max_size=10))
def test_each_parent_is_what_the_definition_says(spans):
    marks = [_op(str(at), span[0], span[1], span[3], span[2]) for at, span in enumerate(spans)]
    found = _nest(*marks)
    assert found.parent.tolist() == [_plain_parent(marks, row) for row in range(len(marks))]


def _around(parent: list[int], row: int) -> list[int]:
    return [row, *(_around(parent, parent[row]) if parent[row] != NO_ROW else [])]


@given(st.lists(_SPANS, max_size=10), st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_lookups_up_the_chain_are_what_the_definition_says(spans, wanted, within):
    found = _nest(*(_op(str(at), s[0], s[1], s[3], s[2]) for at, s in enumerate(spans)))
    wanted, within = ({row for row in rows if row < len(spans)} for rows in (wanted, within))
    parent, depth = found.parent.tolist(), found.depth.tolist()
    nearest, outermost = list[int](), list[int]()
    for row in range(len(spans)):
        chain = [] if depth[row] == NO_ROW else _around(parent, row)
        nearest.append(next((at for at in chain if at in wanted), NO_ROW))
        inside = list(takewhile(lambda at: at not in within, chain))
        outermost.append(next((at for at in reversed(inside) if at in wanted), NO_ROW))
    flags = [_flags(*rows, length=len(spans)) for rows in (wanted, within)]
    assert found.nearest(flags[0]).tolist() == nearest
    assert found.outermost(*flags).tolist() == outermost
