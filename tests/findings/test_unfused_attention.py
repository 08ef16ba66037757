"""Facts about the rule of attention that is not one kernel."""

from __future__ import annotations

from profiler_ext.findings import SavingPer
from profiler_ext.findings.rules import unfused_attention
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import US, Script, is_silent, only, placed

CODE = "y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)"
FORWARD = {"file": "/m.py", "line": 3, "code": CODE, "phase": Phase.FORWARD}
BACKWARD = {**FORWARD, "phase": Phase.BACKWARD}


def step(*ops: str) -> Analysis:
    """A step that waits for the device, each op with a kernel of 300 us."""
    script = Script()
    for op in ops:
        script.launch(f"{op}_kernel", 300 * US, op=f"aten::{op}")
    script.wait()
    script.end_step()
    return script.analysis()


def test_two_thirds_of_what_is_launched_at_the_call_are_at_stake() -> None:
    made = step("bmm", "_softmax", "baddbmm", "mul")
    found = only(
        unfused_attention.RULE, placed(made, bmm=FORWARD, _softmax=FORWARD, baddbmm=BACKWARD)
    )
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.STEP, 600 * US)
    assert (found.location.file, found.location.line, found.location.code) == ("/m.py", 3, CODE)
    assert [each.value for each in found.evidence] == [3, 900 * US]


def test_products_with_a_weight_at_the_same_line_are_not_counted() -> None:
    made = step("addmm", "mm", "bmm", "baddbmm")
    placed_there = placed(made, addmm=FORWARD, mm=BACKWARD, bmm=FORWARD, baddbmm=BACKWARD)
    assert only(unfused_attention.RULE, placed_there).est_saving_ns == 400 * US


def test_an_eager_call_is_reported_by_the_ops_within_it() -> None:
    whole = {"aten_op": "aten::scaled_dot_product_attention"}
    products = placed(step("bmm", "baddbmm"), bmm=FORWARD | whole, baddbmm=BACKWARD)
    assert only(unfused_attention.RULE, products).est_saving_ns == 400 * US
    kernel = step("_flash_attention_forward", "_flash_attention_backward")
    fused = placed(
        kernel, _flash_attention_forward=FORWARD | whole, _flash_attention_backward=BACKWARD
    )
    assert is_silent(unfused_attention.RULE, fused)


def test_attention_as_one_kernel_and_that_of_inference_are_left_alone() -> None:
    one = step(
        "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward"
    )
    fused = placed(
        one,
        _scaled_dot_product_flash_attention=FORWARD,
        _scaled_dot_product_flash_attention_backward=BACKWARD,
    )
    assert is_silent(unfused_attention.RULE, fused)
    assert is_silent(unfused_attention.RULE, placed(step("bmm", "_softmax"), bmm=FORWARD))


def test_products_and_a_softmax_that_the_model_writes_out_are_left_alone() -> None:
    written = {**FORWARD, "code": "y = torch.softmax(q @ k.mT, -1) @ v"}
    made = placed(step("bmm", "baddbmm"), bmm=written, baddbmm={**written, "phase": Phase.BACKWARD})
    assert is_silent(unfused_attention.RULE, made)
