"""How kernels were launched is read as Kineto writes it; what is damaged is not known."""

from __future__ import annotations

import numpy as np
import pytest

from profiler_ext.kineto.launch_shapes import launch_shapes
from profiler_ext.kineto.reader import read_trace
from tests.kineto.traces import H200, text_of, written

ARGS = b'"grid": [8, 2, 1], "block": [128, 1, 1], "registers per thread": 79'
REST = b'"shared memory": 4096, "est. achieved occupancy %": 12'


def read(tmp_path, *arguments: bytes):
    events = [
        b'{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.000, "dur": 1.000,'
        b' "args": {' + each + b"}}"
        for each in arguments
    ]
    trace = read_trace(written(tmp_path, text_of(events=tuple(events))))
    return launch_shapes(trace, np.arange(len(events)))


def values(shapes, row: int = 0):
    numbers = (shapes.registers_per_thread, shapes.shared_memory_bytes, shapes.occupancy_percent)
    return shapes.grid[row], shapes.block[row], *(column.tolist()[row] for column in numbers)


def test_what_kineto_tells_is_read(tmp_path):
    whole = ARGS + b", " + REST
    shapes = read(tmp_path, whole, ARGS, b'"bytes": 5', whole)
    assert [values(shapes, row) for row in range(3)] == [
        ("8x2x1", "128x1x1", 79, 4096, 12),
        ("8x2x1", "128x1x1", 79, None, None),
        ("", "", None, None, None),
    ]
    assert (shapes.codes[0], len(set(shapes.codes.tolist()))) == (shapes.codes[3], 3)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (b'"grid": [8, 2], "block": 7', ("", "", None, None, None)),
        (b'"grid": [8, -2, 1], "block": [1, "1", 1]', ("", "", None, None, None)),
        (b'"grid": "grid(8, 1, 1)", "registers per thread": "79"', ("", "", None, None, None)),
        (b'"grid": [1, 1, 1], "registers per thread": 1e3', ("1x1x1", "", 1000, None, None)),
        (b'"grid": [1, 1, 1], "registers per thread": 1.5', ("1x1x1", "", None, None, None)),
        (b'"grid": [1, 1, 1], "shared memory": true', ("1x1x1", "", None, None, None)),
        (b'"grid": [99999999999999999999, 1, 1]', ("", "", None, None, None)),
        (b'"grid": [1, 1, 1], "est. achieved occupancy %": NaN', ("1x1x1", "", None, None, None)),
    ],
)
def test_what_is_no_such_value_is_not_known(tmp_path, arguments, expected):
    assert values(read(tmp_path, arguments)) == expected


def test_every_kernel_of_a_gpu_has_its_grid_and_its_block():
    trace = read_trace(H200 / "default.pt.trace.json.gz")
    kernels = np.flatnonzero(trace.events.category.where("kernel"))
    shapes = launch_shapes(trace, kernels)
    assert len(kernels) > 200
    assert not (shapes.grid.where("") | shapes.block.where("")).any()
    assert shapes.registers_per_thread.count() == len(kernels)


def test_events_of_the_cpu_have_none():
    trace = read_trace(H200 / "default.pt.trace.json.gz")
    shapes = launch_shapes(trace, np.flatnonzero(trace.events.category.where("cpu_op")))
    assert not shapes.grid.where("").size or shapes.grid.where("").all()
