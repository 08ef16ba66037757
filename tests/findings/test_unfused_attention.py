"""Facts about the rule of attention that is not one kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.findings import SavingPer
from profiler_ext.findings.facts import facts_of
from profiler_ext.findings.library_kernels import Attention, table
from profiler_ext.findings.rules import unfused_attention
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import US, Script, is_silent, only, placed
from tests.handmade import interned

CODE = "y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)"
FORWARD = {"file": "/m.py", "line": 3, "code": CODE, "phase": Phase.FORWARD}
BACKWARD = {**FORWARD, "phase": Phase.BACKWARD}


def stake(
    own_us: int,
    mask: str = "none",
    then: str = "none",
    length: int | None = None,
    *,
    learns: bool = True,
    as_row: str = "math",
) -> int:
    """What such launches take, without the part of a fused kernel in the table."""
    call = Attention("bfloat16", mask, None, length, has_backward=learns)
    after = replace(call, mask=then)
    part = table().attention_fraction((as_row, call), after, device="NVIDIA H200")
    assert part is not None
    assert 0.02 < part < (0.2 if as_row == "math" else 0.5)
    return own_us * US - int(part * own_us * US)


def step(*ops: str, duration_us: int = 300) -> Analysis:
    """A step that waits for the device, each op with a kernel of 300 us."""
    script = Script()
    for op in ops:
        script.launch(f"{op}_kernel", duration_us * US, op=f"aten::{op}")
    script.wait()
    script.end_step()
    return script.analysis()


def test_most_of_what_is_launched_at_the_call_are_at_stake() -> None:
    made = step("bmm", "_softmax", "baddbmm", "mul")
    found = only(
        unfused_attention.RULE, placed(made, bmm=FORWARD, _softmax=FORWARD, baddbmm=BACKWARD)
    )
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.STEP, stake(900))
    assert (found.location.file, found.location.line, found.location.code) == ("/m.py", 3, CODE)
    assert [each.value for each in found.evidence[:3]] == [3, 900 * US, 900 * US - stake(900)]


def test_products_with_a_weight_at_the_same_line_are_not_counted() -> None:
    made = step("addmm", "mm", "bmm", "baddbmm")
    placed_there = placed(made, addmm=FORWARD, mm=BACKWARD, bmm=FORWARD, baddbmm=BACKWARD)
    assert only(unfused_attention.RULE, placed_there).est_saving_ns == stake(600)


def test_an_eager_call_is_reported_by_the_ops_within_it() -> None:
    whole = {"aten_op": "aten::scaled_dot_product_attention"}
    products = placed(step("bmm", "baddbmm"), bmm=FORWARD | whole, baddbmm=BACKWARD)
    assert only(unfused_attention.RULE, products).est_saving_ns == stake(600)
    kernel = step("_flash_attention_forward", "_flash_attention_backward")
    fused = placed(
        kernel, _flash_attention_forward=FORWARD | whole, _flash_attention_backward=BACKWARD
    )
    assert is_silent(unfused_attention.RULE, fused)


def test_attention_as_one_kernel_and_that_of_one_token_are_left_alone() -> None:
    one = step(
        "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward"
    )
    fused = placed(
        one,
        _scaled_dot_product_flash_attention=FORWARD,
        _scaled_dot_product_flash_attention_backward=BACKWARD,
    )
    assert is_silent(unfused_attention.RULE, fused)
    token = step("bmm", "_softmax", "mul", duration_us=5)
    assert is_silent(unfused_attention.RULE, placed(token, bmm=FORWARD, _softmax=FORWARD))


def test_attention_of_many_tokens_in_inference_is_judged_without_a_backward() -> None:
    made = step("bmm", "_softmax", "mul")
    found = only(unfused_attention.RULE, placed(made, bmm=FORWARD, _softmax=FORWARD))
    assert found.est_saving_ns == stake(600, learns=False)
    written_out = FORWARD | {"code": "y", "module": "blocks.0"}
    made = step("bmm", "_softmax", "bmm", "mul")
    found = only(unfused_attention.RULE, placed(made, bmm=written_out, _softmax=written_out))
    assert found.est_saving_ns == stake(900, learns=False, as_row="written")


WRITTEN = ("bmm", "div", "_softmax", "add", "_softmax_backward_data", "baddbmm")


def written(softmax_line: int = 4) -> Analysis:
    """A step whose attention is three lines of a model, with a residual at the last."""
    lines = dict(zip(WRITTEN, (3, 3, softmax_line, 5, softmax_line, 5), strict=True))
    places = {
        op: {
            "file": "/m.py",
            "line": line,
            "code": "y = torch.softmax(scores, -1) @ v",
            "module": "blocks.0.attention",
            "phase": Phase.BACKWARD if op[:2] in ("ba", "_s") and "back" in op else Phase.FORWARD,
        }
        for op, line in lines.items()
    }
    places["baddbmm"]["phase"] = Phase.BACKWARD
    return placed(step(*WRITTEN), **places)


def test_attention_that_the_model_writes_out_is_reported_from_its_products_to_its_softmax() -> None:
    found = only(unfused_attention.RULE, written())
    # All but the addition after the last product, which may be a residual
    assert found.est_saving_ns == stake(5 * 300, as_row="written")
    assert "F.scaled_dot_product_attention" in found.remedy


def test_what_runs_between_the_products_is_counted_at_whatever_line() -> None:
    made = step("mm", "bmm", "copy_", "add", "_softmax", "copy_", "bmm", "add", "mm", "baddbmm")
    there = {"module": "blocks.0.attention"}
    placed_there = placed(
        made,
        mm=FORWARD | there | {"code": "y", "line": 3},
        bmm=FORWARD | there | {"code": "y"},
        _softmax=FORWARD | there | {"code": "y"},
        copy_=FORWARD | {"code": "y", "line": 90},
        add=FORWARD | {"code": "y", "line": 91},
        baddbmm=BACKWARD | there | {"code": "y"},
    )
    assert is_silent(unfused_attention.RULE, placed_there)  # no softmax backward: inference
    made = step(
        *("mm", "bmm", "copy_", "add", "_softmax", "copy_", "bmm", "add", "mm"),
        *("baddbmm", "_softmax_backward_data", "baddbmm"),
    )
    placed_there = placed(
        made,
        mm=FORWARD | there | {"code": "y", "line": 3},
        bmm=FORWARD | there | {"code": "y"},
        _softmax=FORWARD | there | {"code": "y"},
        _softmax_backward_data=BACKWARD | there | {"code": "y"},
        copy_=FORWARD | {"code": "y", "line": 90},
        add=FORWARD | {"code": "y", "line": 91},
        baddbmm=BACKWARD | there | {"code": "y"},
    )
    # Neither the products with a weight nor the addition after the last product
    # What is added to the scores is a mask, which a fused kernel takes as it is.
    assert only(unfused_attention.RULE, placed_there).est_saving_ns == stake(
        9 * 300, "float", "float", as_row="written"
    )


def test_a_softmax_of_what_a_router_returns_is_no_attention() -> None:
    router = {"module": "blocks.0.experts", "code": "gate = self.gate(x).softmax(-1)"}
    backward = ("baddbmm", "_softmax_backward_data")
    for first, is_attention in (("mm", False), ("bmm", True)):
        made = placed(
            step(first, "_softmax", "bmm", "bmm", *backward),
            mm=FORWARD | router,
            _softmax=FORWARD | router,
            bmm=FORWARD | router,
            baddbmm=BACKWARD | router,
            _softmax_backward_data=BACKWARD | router,
        )
        assert is_silent(unfused_attention.RULE, made) != is_attention


def test_a_learned_bias_and_dropout_with_a_mask_are_judged_by_their_own_kernels() -> None:
    places = {"add": FORWARD, "sum": BACKWARD, "bmm": FORWARD, "baddbmm": BACKWARD}
    learned = placed(step("bmm", "add", "_softmax", "bmm", "baddbmm", "sum"), **places)
    drops = placed(
        step("bmm", "add", "_softmax", "native_dropout", "bmm", "baddbmm"),
        native_dropout=FORWARD,
        **places,
    )
    alone = placed(
        step("bmm", "_softmax", "native_dropout", "bmm", "baddbmm"),
        native_dropout=FORWARD,
        **places,
    )
    parts = []
    for made in (learned, drops, alone):
        phases = interned([made.places[at].phase.value for at in facts_of(made).main_place])
        known = replace(made, launches=replace(made.launches, phase=phases))
        found = only(unfused_attention.RULE, known)
        parts.append(found.evidence[2].value / found.evidence[1].value)
    assert 0.25 < parts[0] < 0.35
    assert 0.25 < parts[1] < 0.35
    assert parts[2] < 0.15


def with_bias(softmax: str, product: str = "bmm_c10::BFloat16") -> Analysis:
    """A step whose attention has a learned bias, for 256 tokens or fewer."""
    script = Script()
    ops = ("bmm", "add", "_softmax", "bmm", "baddbmm", "_softmax_backward_data", "sum", "baddbmm")
    for op in ops:
        script.launch(softmax if "softmax" in op else product, 300 * US, op=f"aten::{op}")
    script.wait()
    script.end_step()
    places = dict.fromkeys(("bmm", "add", "_softmax"), FORWARD | {"code": "y"})
    places |= dict.fromkeys(("baddbmm", "_softmax_backward_data", "sum"), BACKWARD | {"code": "y"})
    made = placed(script.analysis(), **places)
    phases = interned([made.places[at].phase.value for at in facts_of(made).main_place])
    return replace(made, launches=replace(made.launches, phase=phases))


def test_ops_of_a_model_run_in_its_dtype_and_are_held_against_rows_of_such_ops() -> None:
    # Torch's own unfused attention computes bfloat16 in float32, which takes twice as long
    parts = {}
    for row, dtypes in (("written", "c10::BFloat16, c10::BFloat16"), ("autocast", "float, float")):
        found = only(
            unfused_attention.RULE, with_bias(f"void softmax_warp_forward<{dtypes}, float, 8>")
        )
        parts[row] = found.evidence[2].value / found.evidence[1].value
        call = Attention("bfloat16", "bias", None, 192, has_backward=True)
        expected = table().attention_fraction((row, call), call, device="NVIDIA H200")
        assert parts[row] == pytest.approx(expected, rel=1e-3)
        # Without that, torch takes none of its fused kernels: 39 ms in place of 22
        assert ".contiguous()" in found.remedy
    assert 0.3 < parts["autocast"] < parts["written"] < 0.9


def test_queries_that_have_keys_of_their_own_are_left_alone() -> None:
    softmax = "void softmax_warp_forward<float, float, float, 8>"
    rows = "internal::gemvx::kernel<int, int, __nv_bfloat16>"
    assert is_silent(unfused_attention.RULE, with_bias(softmax, rows))


def test_a_masked_softmax_of_known_length_is_judged_by_the_causal_kernel_of_that_length() -> None:
    script = Script()
    kernel = "void softmax_warp_forward<float, float, float, 10, false, false>(float*)"
    for op in ("bmm", "masked_fill_", "_softmax", "bmm", "baddbmm"):
        script.launch(kernel if op == "_softmax" else f"{op}_kernel", 300 * US, op=f"aten::{op}")
    script.wait()
    script.end_step()
    ops = dict.fromkeys(("bmm", "masked_fill_", "_softmax"), FORWARD) | {"baddbmm": BACKWARD}
    found = only(unfused_attention.RULE, placed(script.analysis(), **ops))
    assert found.est_saving_ns == stake(1500, "bool", "causal", 1024)


def test_a_softmax_far_from_batched_products_is_left_alone() -> None:
    assert is_silent(unfused_attention.RULE, written(softmax_line=40))


def test_short_products_that_make_a_bias_are_no_part_of_the_attention() -> None:
    script = Script()
    for op in ("bmm", "bmm", "baddbmm", "add", "_softmax", "baddbmm"):
        if "bmm" in op:
            script.launch("Memset (Device)", US, op=f"aten::{op}", category="gpu_memset")
        script.launch(f"{op}_kernel", (5 if op == "bmm" else 300) * US, op=f"aten::{op}")
    script.wait()
    script.end_step()
    here = FORWARD | {"code": "y", "module": "blocks.0"}
    places = dict.fromkeys(("baddbmm", "add", "_softmax"), here) | {"bmm": here | {"line": 2}}
    found = only(unfused_attention.RULE, placed(script.analysis(), **places))
    # Two products with a memset each, the addition and the softmax
    assert [each.value for each in found.evidence[:2]] == [6, 1202 * US]
    assert found.location.line == 3


def test_of_several_additions_to_the_scores_all_but_one_make_the_mask() -> None:
    ops = ("bmm", "add", "add_", "_softmax", "baddbmm", "mul")
    places = {op: FORWARD | {"code": "y", "line": 3 + at} for at, op in enumerate(ops[:-1])}
    made = placed(step(*ops), **places)
    phases = interned([Phase.FORWARD.value] * len(ops))
    made = replace(made, launches=replace(made.launches, phase=phases))
    found = only(unfused_attention.RULE, made)
    assert (found.evidence[0].value, found.evidence[3].value) == (5, 300 * US)
    call = {"learns": False, "as_row": "written"}
    assert found.est_saving_ns == stake(4 * 300, "float", "float", **call)
