"""Arrows from forward to backward are read as torch writes them; what is none is none."""

from __future__ import annotations

from dataclasses import replace

from profiler_ext.kineto.flow_events import ForwardFlow, forward_flows
from profiler_ext.records.events import Thread
from tests.handmade import trace

START = b'{"ph": "s", "id": 4, "pid": 1, "tid": 10, "ts": 7.001, "cat": "fwdbwd", "name": "fwdbwd"}'
END = b'{"ph": "f", "id": 4, "pid": 1, "tid": 11, "ts": 4483044951728.789, "cat": "fwdbwd"}'
OTHERS = (
    b'{"ph": "f", "id": 5, "pid": 1, "tid": 11, "ts": 9, "cat": "fwdbwd"}',  # without a start
    b'{"ph": "f", "id": 4, "pid": 1, "tid": 11, "ts": 1e400, "cat": "fwdbwd"}',
    b'{"ph": "f", "id": 4, "pid": 1, "tid": 11, "ts": "soon", "cat": "fwdbwd"}',
    b'{"ph": "f", "id": [4], "cat": "fwdbwd"}',
    b'{"ph": "X", "id": 4, "pid": 1, "tid": 11, "ts": 9, "cat": "fwdbwd"}',
    b'{"ph": "s", "id": 4, "pid": 1, "tid": 11, "ts": 9, "cat": "ac2g"}',
)


def test_an_arrow_has_both_ends_and_its_time_is_exact() -> None:
    raw = (END, *OTHERS, START)
    found = list(forward_flows(replace(trace([]), raw=raw)))
    assert found == [ForwardFlow(Thread(1, 10), Thread(1, 11), 4_483_044_951_728_789)]
