"""What a kernel stores is read from generated code, and compared with what its schedule lets it."""

from __future__ import annotations

import pytest

from verification.oracle import stores
from verification.oracle.stores import Claimed, compare

CODE = """
triton_poi_fused_sin_0 = async_compile.triton('triton_poi_fused_sin_0', '''
@triton.jit
def triton_poi_fused_sin_0(in_ptr0, in_out_ptr0, out_ptr1, xnumel, XBLOCK : tl.constexpr):
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tl.store(in_out_ptr0 + (x0), tmp0, xmask)
    tl.atomic_add(out_ptr1 + (tmp0), tmp0, xmask)
''', device_str='cuda')

def call(args):
        triton_poi_fused_sin_0.run(arg0_1, buf1, buf3, 32, stream=stream0)
"""


TEMPLATE = """
triton_tem_attention_backward_0 = async_compile.triton('triton_tem_attention_backward_0', '''
@triton.jit
def triton_tem_attention_backward_0(arg_Q, arg_DQ, arg_DV, out_ptr0):
    Q = arg_Q
    DQ = arg_DQ
    DV = arg_DV
    DV += offset
    q_ptrs = Q + rows * 64
    DQ2 = DQ + offset
    dq_ptrs = DQ2 + rows[:, None] * 64
    tl.store(dq_ptrs, dq)
    dv_ptrs = DV + rows[:, None] * 64
    tl.store(dv_ptrs, tl.load(q_ptrs))
    tl.store(out_ptr0 + (x0), dk, xmask)
''', device_str='cuda')

def call(args):
        triton_tem_attention_backward_0.run(arg0_1, buf3, buf4, buf5, 32, stream=stream0)
"""


def _outcomes(*stored: str) -> dict[str, int]:
    claim = Claimed("triton_poi_fused_sin_0", "triton", frozenset(stored), is_known=True)
    return dict(compare(CODE, [claim], {"buf4": "buf3"}).counts)


def test_stores_are_those_of_the_code_by_the_names_of_the_call() -> None:
    assert _outcomes("buf1", "buf3") == {"triton: as its code": 1}
    assert _outcomes("buf1", "buf4") == {"triton: as its code": 1}


def test_a_store_that_the_code_does_not_make_and_one_that_is_missed_are_found() -> None:
    assert _outcomes("buf1", "buf2", "buf3") == {"triton: differs": 1}
    assert _outcomes("buf1") == {"triton: differs": 1}


def test_a_template_stores_through_pointers_that_it_makes_of_its_arguments() -> None:
    kernel, mutated = "triton_tem_attention_backward_0", {"buf6": "buf3", "buf7": "buf4"}
    stores = [frozenset({"buf5", "buf6", "buf7"}), frozenset({"buf5", "buf6"})]
    claims = [Claimed(kernel, "triton_template", each, is_known=True) for each in stores]
    counts = compare(TEMPLATE, claims, mutated).counts
    assert counts == {"triton_template: as its code": 1, "triton_template: differs": 1}


def test_a_schedule_that_tells_nothing_is_counted_as_such() -> None:
    claim = Claimed("triton_poi_fused_sin_0", "triton", None, is_known=False)
    assert dict(compare(CODE, [claim], {}).counts) == {"triton: not told": 1}


def test_the_kernels_of_a_case_store_what_capture_says() -> None:
    pytest.importorskip("triton")
    found = stores.checked("combo_kernels", "triton")
    assert not found.differing
    assert found.counts["triton: as its code"] >= 3
