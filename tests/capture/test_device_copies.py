"""A copy to another device is a call site with the operator that the wrapper calls."""

from __future__ import annotations

from torch._inductor.ir import DeviceCopy

from profiler_ext.torch_compat import inductor


def test_a_device_copy_calls_copy():
    copy = object.__new__(DeviceCopy)
    assert inductor.launches_without_comment(copy)
    assert inductor.extern_op(copy, None) == "aten::copy_"
