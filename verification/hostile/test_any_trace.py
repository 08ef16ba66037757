"""Whatever stands in a trace, its time is accounted for or the trace is refused."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import profiler_ext
from profiler_ext.errors import ProfilerExtError
from verification.hostile.ways import check_conservation

NAMES = st.sampled_from(
    [
        "aten::mm",
        "ProfilerStep#1",
        "ProfilerStep#2",
        "## Call CompiledFxGraph None ##",
        "Torch-Compiled Region: 0/0",
        "CompiledFunction",
        "CompiledFunctionBackward",
        "cudaLaunchKernel",
        "cudaGraphLaunch",
        "triton_poi_fused_tanh_0",
        "Optimizer.step#AdamW.step",
    ]
)
CATEGORIES = st.sampled_from(
    ["cpu_op", "user_annotation", "cuda_runtime", "kernel", "gpu_memcpy", "overhead", ""]
)
IDS = st.none() | st.integers(-1, 4) | st.integers() | st.text(max_size=3)
TIMES = st.integers(-3, 40) | st.floats(-5, 50) | st.integers(-(10**16), 10**16)
ARGS = st.fixed_dictionaries(
    {},
    optional={
        "correlation": IDS,
        "External id": IDS,
        "Sequence number": IDS,
        "Fwd thread id": IDS,
        "device": IDS,
        "stream": IDS,
        "bytes": IDS,
        "odd": st.recursive(st.none() | st.floats() | st.text(), st.lists, max_leaves=4),
    },
)
EVENTS = st.fixed_dictionaries(
    {
        "ph": st.sampled_from(["X", "X", "X", "X", "M", "s"]),
        "cat": CATEGORIES,
        "name": NAMES | st.text(max_size=5),
        "pid": st.integers(0, 1),
        "tid": st.integers(0, 1) | st.text(max_size=2),
        "ts": TIMES,
        "dur": TIMES,
    },
    optional={"args": ARGS},
)


@settings(
    max_examples=80,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(EVENTS, max_size=12))
def test_time_is_conserved_or_the_trace_is_refused(tmp_path, events):
    path = tmp_path / "any.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    try:
        analysis = profiler_ext.load(path).analysis
    except ProfilerExtError as error:
        assert str(error).isprintable()
    else:
        check_conservation(analysis)
