"""Work that a model does without need: each rule has a step with it, and one without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.findings import Location, SavingPer
from profiler_ext.findings.library_kernels import table
from profiler_ext.findings.ranking import judge
from profiler_ext.findings.rules import (
    attention_backend,
    autograd_in_inference,
    bias_before_norm,
    float32_model,
    foreach_optimizer,
    fp32_matmul,
    indexing_gradient,
    loss_scaling,
    one_hot,
    padded_batch,
    repeated_heads,
    strided_copy,
    uncompiled,
    unfolded_norm,
)
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.lineage import Frame
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import (
    CPU,
    ELEMENTWISE,
    US,
    Launch,
    Script,
    at,
    backward,
    forward,
    is_silent,
    made,
    only,
    placed,
    trained,
)
from tests.findings.test_promoted_dtype import CAST
from tests.handmade import Mark, interned

STATISTICS = "void at::native::batch_norm_collect_statistics_channels_last_kernel<float>"
FIXED = "void at::native::batch_norm_transform_input_channels_last_kernel<float>"
BF16 = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT"
FP16 = "nvjet_sm90_hsh_128x64_64x8_1x2_h_bz_NNT"
TF32 = "sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x128x32_warpgroupsize1x1x1"
FMHA = "fmha_cutlassF_f32_aligned_64x64_rf_sm80"
WGRAD = "void cutlass::Kernel2<cutlass_80_simt_swgrad_128x128_8x4_nhwc>"


CONVOLUTION = (forward("cudnn_convolution", BF16), forward("add_"), forward("native_batch_norm"))


def convolved(norm: str = STATISTICS, bias: bool = True) -> Analysis:
    convolution, add, _ = CONVOLUTION
    launches = [convolution, *([add] if bias else []), forward("native_batch_norm", norm)]
    launches += [backward("convolution_backward", BF16), *([backward("sum")] if bias else [])]
    return made(
        *launches,
        cudnn_convolution=at(3, "conv2d", module="conv"),
        add_=at(3, "conv2d", module="conv"),
        native_batch_norm=at(4, "batch_norm", module="norm"),
        convolution_backward=at(3, phase=Phase.BACKWARD, module="conv"),
        sum=at(3, "convolution_backward", Phase.BACKWARD, module="conv"),
    )


def test_a_bias_before_a_batch_norm_costs_its_addition_and_the_sum_of_its_gradient():
    found = only(bias_before_norm.RULE, convolved())
    assert found.est_saving_ns == 600 * US
    assert (found.location.file, found.location.line) == ("/model.py", 3)
    assert [each.value for each in found.evidence] == [1, 300 * US, 300 * US]


def test_layers_without_a_bias_and_norms_with_fixed_statistics_are_none():
    assert is_silent(bias_before_norm.RULE, convolved(bias=False))
    assert is_silent(bias_before_norm.RULE, convolved(norm=FIXED))


def test_norms_of_inference_that_convolutions_could_do_are_reported():
    launches = [forward("cudnn_convolution", BF16), forward("add_")]
    launches.append(forward("native_batch_norm", FIXED))
    places = {
        "cudnn_convolution": at(3, "conv2d"),
        "add_": at(3, "conv2d"),
        "native_batch_norm": at(4, "batch_norm"),
    }
    found = only(unfolded_norm.RULE, made(*launches, **places))
    assert (found.est_saving_ns, found.location.line) == (300 * US, 4)
    learning = made(*launches, backward("convolution_backward"), **places)
    assert is_silent(unfolded_norm.RULE, learning)


def test_a_norm_that_becomes_a_bias_saves_what_it_launches_beside_its_longest_kernel():
    convolution, norm = forward("cudnn_convolution", BF16), forward("native_batch_norm", FIXED)
    places = {"cudnn_convolution": at(3, "conv2d"), "native_batch_norm": at(4, "batch_norm")}
    assert is_silent(unfolded_norm.RULE, made(convolution, norm, **places))
    script = Script()
    for _ in range(3):
        script.launch(BF16, 300 * US, op="aten::cudnn_convolution")
        begin_ns = script.now_ns
        for kernel_us in (300, 100, 50):
            script.launch(FIXED, kernel_us * US, op="aten::native_batch_norm")
        whole = Mark("aten::batch_norm", "cpu_op", CPU, begin_ns, script.now_ns - begin_ns)
        script.marks.append(whole)
        script.wait()
        script.end_step()
    places["batch_norm"] = at(4)
    found = only(unfolded_norm.RULE, placed(script.analysis(), **places))
    assert found.est_saving_ns == 150 * US


def copied(code: str, reader: str, gradients: int = 1, op: str = "contiguous") -> Analysis:
    launches = [forward("copy_"), forward(reader, BF16), *[backward("reshape")] * gradients]
    analysis = made(
        *launches,
        copy_=at(5, op, code=code),
        reshape=at(4, "reshape", Phase.BACKWARD),
        **{reader: at(6)},
    )
    return renamed(analysis, "aten::reshape", "aten::copy_")


def renamed(analysis: Analysis, op: str, to: str) -> Analysis:
    """Return an analysis whose op has another name; its places keep theirs."""
    trace = analysis.recording.trace
    names = ["".join((to if each == op else each,)) for each in trace.events.name]
    events = replace(trace.events, name=interned(names))
    recording = replace(analysis.recording, trace=replace(trace, events=events))
    return replace(analysis, recording=recording)


def test_copies_that_attention_reads_and_those_of_their_gradients_are_needless():
    found = only(strided_copy.RULE, copied("q.transpose(1, 2).contiguous()", "_flash_attention"))
    assert (found.est_saving_ns, found.location.line) == (600 * US, 5)
    assert found.remedy.startswith("leave .contiguous() out")


@pytest.mark.parametrize(
    ("code", "is_needless"),
    [
        ("q = rearrange(q, 'b n (h d) -> (b h) n d', h=self.heads)", True),
        ("q = q.transpose(1, 2).reshape(b * self.num_heads, n, d)", True),
        ("q = q.permute(0, 1, 3, 2, 4, 5).reshape(-1, window, d)", False),
        ("k = k.reshape(b, heads * groups, n, d)", False),
    ],
)
def test_heads_that_are_merged_with_the_batch_are_copied_for_attention(
    code: str, is_needless: bool
):
    step = copied(code, "_flash_attention", 0, op="reshape")
    if is_needless:
        assert only(strided_copy.RULE, step).est_saving_ns == 300 * US
    else:
        assert is_silent(strided_copy.RULE, step)
    assert is_silent(strided_copy.RULE, copied(code, "bmm", 0, op="reshape"))


def test_a_weight_that_is_transposed_by_a_copy_is_read_by_a_product():
    found = only(strided_copy.RULE, copied("x @ self.weight.t().contiguous()", "mm", 0))
    assert found.est_saving_ns == 300 * US


@pytest.mark.parametrize(
    ("code", "reader"),
    [
        ("y.transpose(1, 2).contiguous().view(b, t, c)", "_flash_attention"),
        ("y = y.transpose(1, 2).contiguous()", "mm"),
        ("y = y.transpose(1, 2).contiguous()", "mul"),
        ("y = y.transpose(1, 2).reshape(b, t, c)", "_flash_attention"),
    ],
)
def test_copies_that_a_view_needs_or_that_others_read_are_none(code: str, reader: str):
    assert is_silent(strided_copy.RULE, copied(code, reader))


def repeated(code: str, function: str = "forward") -> Analysis:
    return made(
        forward("copy_"),
        forward("_flash_attention", BF16),
        backward("sum"),
        copy_=at(5, "reshape", code=code, function=function),
        sum=at(4, phase=Phase.BACKWARD, function=function),
        _flash_attention=at(6),
    )


def test_keys_and_values_that_are_copied_for_each_head_are_reported():
    found = only(repeated_heads.RULE, repeated("x.reshape(b, h * n, t, d)", "repeat_kv"))
    assert (found.est_saving_ns, found.location.line) == (600 * US, 5)
    assert "enable_gqa=True" in found.remedy
    assert is_silent(repeated_heads.RULE, repeated("x.reshape(b, h * n, t, d)"))


def test_where_the_cpu_is_behind_the_views_before_a_repeat_go_with_it():
    script = Script()
    for _ in range(3):
        for _ in range(20):
            script.launch(BF16, 2 * US, op="aten::mm")
            script.work("aten::expand", 30 * US, "cpu_op")
            script.launch(ELEMENTWISE, 2 * US, op="aten::copy_")
            script.launch(FMHA, 2 * US, op="aten::_flash_attention")
        script.wait()
        script.end_step()
    repeat = at(5, "reshape", code="x.reshape(b, h, t, d)", function="repeat_kv")
    analysis = placed(script.analysis(), copy_=repeat, _flash_attention=at(6))
    analysis = trained(analysis, *[20 * 60 * US] * 5, on_device=True)
    # Of 60 us in each round 30 are the views and 10 the copy
    assert only(repeated_heads.RULE, analysis).est_saving_ns == pytest.approx(800 * US, rel=0.05)


def targets(loss: str = "cross_entropy_loss") -> Analysis:
    return made(
        forward("fill_"),
        forward("_log_softmax"),
        forward("mul"),
        forward("mm", BF16),
        fill_=at(3, "one_hot"),
        _log_softmax=at(4, loss),
        mul=at(4, loss),
        mm=at(2),
    )


def test_one_hot_targets_cost_their_rows_and_what_a_loss_multiplies_by_them():
    found = only(one_hot.RULE, targets())
    assert (found.est_saving_ns, found.confidence.value) == (600 * US, "measured")


def test_one_hot_rows_that_something_else_reads_are_an_upper_bound():
    found = only(one_hot.RULE, targets(loss="mse_loss"))
    assert (found.est_saving_ns, found.confidence.value) == (300 * US, "upper_bound")


def test_one_hot_rows_cost_their_conversions_at_other_lines():
    codes = {3: "rows = F.one_hot(x, n)", 4: "rows = rows.float()", 5: "other = other.float()"}
    places = {
        "fill_": at(3, "one_hot", code=codes[3]),
        "cast_rows": at(4, "to", code=codes[4]),
        "cast_other": at(5, "to", code=codes[5]),
        "mul": at(4, "mul", code=codes[4]),
    }
    casts = [forward(op, CAST) for op in ("cast_rows", "cast_other")]
    found = only(one_hot.RULE, made(forward("fill_"), *casts, forward("mul"), **places))
    assert (found.est_saving_ns, found.confidence.value) == (600 * US, "upper_bound")


@pytest.mark.parametrize(
    ("op", "code", "count"),
    [
        ("scatter_", "one_hot.scatter_(1, labels.unsqueeze(1), 1.0)", 2),
        ("scatter", "one_hot = one_hot.scatter(1, target[:, None], 1)", 2),
        ("index", "rows = torch.eye(n, device=x.device)[labels]", 1),
        ("scatter_", "kept.scatter_(1, best, True)", 0),
        ("index", "rows = self.table[labels]", 0),
    ],
)
def test_one_hot_rows_by_hand_cost_the_same(op: str, code: str, count: int):
    fills = at(3, "zeros", code="one_hot = torch.zeros(len(x), n, device=x.device)")
    own = {"fill_": fills, op: at(4, code=code), "mul": at(5, "mul")}
    step = made(forward("fill_"), forward(op), forward("mul"), **own)
    if not count:
        assert is_silent(one_hot.RULE, step)
    else:
        found = only(one_hot.RULE, step)
        assert found.est_saving_ns == count * 300 * US
        assert found.location.line in (3, 4)


def looked_up(by: str = "index") -> Analysis:
    put = backward("_index_put_impl_")
    return made(
        forward(by),
        put,
        put,
        **{by: at(3, "index")},
        _index_put_impl_=at(3, phase=Phase.BACKWARD),
    )


def test_a_gradient_of_indexing_that_sorts_costs_more_than_the_lookup():
    found = only(indexing_gradient.RULE, looked_up())
    assert (found.est_saving_ns, found.location.line) == (300 * US, 3)
    assert is_silent(indexing_gradient.RULE, looked_up(by="nonzero"))


def scaled(kernel: str) -> Analysis:
    unscale = (ELEMENTWISE, "_amp_foreach_non_finite_check_and_unscale_", Phase.OPTIMIZER)
    return made(forward("mm", kernel), unscale)


def test_a_loss_that_is_scaled_for_bfloat16_is_reported():
    assert only(loss_scaling.RULE, scaled(BF16)).est_saving_ns == 300 * US
    assert is_silent(loss_scaling.RULE, scaled(FP16))


ADAM = ("mul_", "lerp_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_")


def updated(*ops: str) -> Analysis:
    return made(*((ELEMENTWISE, f"_foreach_{op}", Phase.OPTIMIZER) for op in ops))


def test_adam_passes_over_the_parameters_more_often_than_its_fused_kernel():
    found = only(foreach_optimizer.RULE, updated(*ADAM))
    # 19 passes in place of 7
    assert found.est_saving_ns == 7 * int((1 - 7 / 19) * 300 * US)
    assert [each.value for each in found.evidence[2:]] == [19, 7]
    assert is_silent(foreach_optimizer.RULE, updated("mul_", "add_"))


def optimized_by(name: str, *, idle_us: int = 0) -> Analysis:
    """Steps of an optimizer's ops on lists, in the range that torch records around its step."""
    script = Script()
    for _ in range(3):
        begin_ns = script.now_ns
        for op in ADAM:
            script.launch(ELEMENTWISE, 2 * US if idle_us else 300 * US, op=f"aten::_foreach_{op}")
            script.now_ns += idle_us * US
        span = CPU, begin_ns, script.now_ns - begin_ns
        script.marks.append(Mark(f"Optimizer.step#{name}.step", "user_annotation", *span))
        script.launch(ELEMENTWISE, 2 * US, op="aten::mul")
        script.wait()
        script.end_step()
    analysis = script.analysis()
    phases = interned([*["optimizer"] * len(ADAM), "forward"] * 3)
    return replace(analysis, launches=replace(analysis.launches, phase=phases))


def test_where_the_cpu_is_behind_a_fused_adam_saves_all_launches_but_one():
    found = only(foreach_optimizer.RULE, optimized_by("AdamW", idle_us=90))
    # Each of the others takes the CPU 100 us, on one that is 1.45 times as fast without recording
    assert found.est_saving_ns == pytest.approx((len(ADAM) - 1) * 100 * US / 1.45, rel=0.2)
    assert found.summary.startswith("CPU launch-bound")


@pytest.mark.parametrize(
    ("name", "is_fused"),
    [("AdamW", True), ("MyAdam", True), ("RAdam", False), ("NAdam", False), ("Adamax", False)],
)
def test_an_optimizer_without_a_fused_kernel_is_not_asked_for_it(name: str, is_fused: bool):
    step = optimized_by(name)
    assert is_silent(foreach_optimizer.RULE, step) is not is_fused


def part(product: str | None) -> float:
    return table().dtype_fraction("tf32", "bfloat16", product)


def test_a_model_in_float32_would_save_what_the_table_has_for_bfloat16():
    found = only(float32_model.RULE, made(forward("mm", TF32), mm=at(3)))
    assert found.est_saving_ns == int((1 - part("weight_gradient")) * 300 * US)
    assert 0.25 < part("weight_gradient") < part(None) < part("output") < 0.6
    assert found.remedy.startswith("torch.autocast")


def test_products_in_float32_beside_others_in_bfloat16_are_those_of_their_line():
    launches = [forward("mm", TF32), *[forward("addmm", BF16)] * 5]
    found = only(float32_model.RULE, made(*launches, mm=at(7), addmm=at(3)))
    assert (found.location.line, found.summary) == (
        7,
        "products in float32, where others have 16 bits",
    )
    assert is_silent(float32_model.RULE, made(forward("addmm", BF16)))


def test_one_long_product_in_float32_does_not_make_a_model_of_float32():
    script = Script()
    for _ in range(3):
        script.launch(TF32, 30_000 * US, op="aten::mm")
        for _ in range(5):
            script.launch(BF16, 10 * US, op="aten::addmm")
        script.wait()
        script.end_step()
    places = {"mm": at(7), "addmm": at(3)}
    found = only(float32_model.RULE, placed(script.analysis(), **places))
    assert (found.location.line, found.remedy.startswith("operands in bfloat16")) == (7, True)


def test_attention_of_a_model_in_float32_is_counted_with_it_and_not_twice():
    attends = forward("_efficient_attention_forward", FMHA)
    whole = made(forward("mm", TF32), attends, mm=at(3), _efficient_attention_forward=at(4))
    rules = (float32_model.RULE, attention_backend.RULE)
    (found,) = judge(whole, rules).ranked
    assert found.rule == "float32_model"
    alone = only(attention_backend.RULE, whole).est_saving_ns
    assert found.est_saving_ns == int((1 - part("weight_gradient")) * 300 * US) + alone


def test_many_convolutions_in_fp32_without_any_in_tf32_rule_tensor_cores_out():
    many = made(*[backward("convolution_backward", WGRAD)] * 10)
    found = only(fp32_matmul.RULE, many)
    assert (found.summary, found.est_saving_ns) == (
        "fp32 convolutions without tensor cores",
        int(0.75 * 10 * 300 * US),
    )
    assert is_silent(fp32_matmul.RULE, made(*[backward("convolution_backward", WGRAD)] * 3))


def test_depthwise_convolutions_of_torch_s_own_kernels_have_no_tensor_cores_to_run_on():
    own = "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel_generic<float>"
    assert is_silent(fp32_matmul.RULE, made(*[forward("_conv_depthwise2d", own)] * 10))


def numbered(nodes: int, *launches: Launch, idle_us: int = 0) -> Analysis:
    """Steps in which autograd numbers so many nodes."""
    analysis = made(*launches, idle_us=idle_us)
    stack = (Frame("/train.py", 7, "step", "y = model(x)"),)
    places = tuple(
        replace(each, stack=(*stack, Frame("/model.py", 3 + number, "forward", "...")))
        for number, each in enumerate(analysis.places)
    )
    trace = analysis.recording.trace
    numbers = np.ma.masked_all(len(trace.events), np.int64)
    for step in analysis.steps:
        rows = np.flatnonzero(
            (trace.events.start_ns >= step.cpu_start_ns) & (trace.events.start_ns < step.cpu_end_ns)
        )
        numbers[rows[[0, -1]]] = [100, 100 + nodes]
    events = replace(trace.events, sequence_number=numbers)
    recording = replace(analysis.recording, trace=replace(trace, events=events))
    known = replace(analysis, recording=recording, places=places)
    before_ns = 2 * 300 * US + idle_us * US
    return trained(known, *[before_ns] * 3, on_device=True)


def test_inference_with_autograd_is_named_at_the_call_of_the_model():
    model = (forward("mm", BF16), forward("mul"))
    found = only(autograd_in_inference.RULE, numbered(50, *model, idle_us=200))
    assert (found.est_saving_ns, found.saving_per) == (0, SavingPer.UNKNOWN)
    assert found.location == Location("/train.py", 7, "y = model(x)")
    nodes, cost, idle = (each.value for each in found.evidence)
    assert (nodes, cost) == (50, 100 * US)
    assert 100 * US < idle < 200 * US


def test_training_and_steps_without_nodes_are_none():
    training = (forward("mm", BF16), backward("mm", BF16))
    assert is_silent(autograd_in_inference.RULE, numbered(50, *training))
    assert is_silent(autograd_in_inference.RULE, numbered(0, forward("mm"), forward("mul")))


def padded(copied_blocks: int) -> Analysis:
    script = Script()
    for _ in range(3):
        copy = "void at::native::elementwise_kernel<128, 2, at::native::direct_copy>"
        script.launch(copy, 2 * US, op="aten::copy_", grid=[copied_blocks, 1, 1])
        lookup = "void at::native::vectorized_gather_kernel<16, long>(char*)"
        script.launch(lookup, 100 * US, op="aten::gather", grid=[4096, 1, 1])
        script.launch(BF16, 900 * US, op="aten::mm")
        script.wait()
        script.end_step()
    analysis = placed(
        script.analysis(), copy_=at(3, "constant_pad_nd"), gather=at(4, "embedding"), mm=at(5)
    )
    phases = interned(["other", "forward", "forward"] * 3)
    return replace(analysis, launches=replace(analysis.launches, phase=phases))


def test_what_is_padded_is_the_part_of_the_rows_that_was_not_copied():
    found = only(padded_batch.RULE, padded(4))
    # 1,024 of 4,096 rows are texts
    assert (found.est_saving_ns, found.location.line) == (750 * US, 3)
    assert found.confidence.value == "upper_bound"
    assert is_silent(padded_batch.RULE, padded(15))  # 3,840 of them


def eager(*ops: str, functions: int = 1) -> Analysis:
    """Each op as often as there are functions, one function after the other."""
    names = [f"{op}_of_{number}" for number in range(functions) for op in ops]
    products = [forward(f"mm_{number}", BF16) for number in range(functions)]
    launches = [forward(name) for name in names]
    places = {
        name: at(100 * (number // len(ops)) + number, function=f"f{number // len(ops)}")
        for number, name in enumerate(names)
    }
    return made(*launches, *products, **places)


def test_of_kernels_in_a_row_all_but_the_longest_go():
    found = only(uncompiled.RULE, eager("mul", "add", "tanh", "pow"))
    assert found.est_saving_ns == 3 * 300 * US
    assert "F.gelu" in found.remedy


def test_two_in_a_row_are_those_of_any_eager_model_and_a_loss_loses_two_thirds():
    pair = only(uncompiled.RULE, eager("mul", "add"))
    assert pair.est_saving_ns == int(0.6 * 600 * US)
    assert pair.remedy.startswith("torch.compile the model")
    loss = only(uncompiled.RULE, eager("_log_softmax", "nll_loss_forward"))
    assert loss.est_saving_ns == 2 * int(2 / 3 * 300 * US)


def test_each_function_with_much_in_a_row_is_named_at_its_line():
    found = judge(eager("mul", "add", "tanh", "pow", functions=2), (uncompiled.RULE,)).ranked
    assert [each.est_saving_ns for each in found] == [900 * US, 900 * US]
    assert {(each.location.line or 0) // 100 for each in found} == {0, 1}


def test_what_a_special_rule_counts_the_general_one_leaves_out():
    launches = [forward("fill_"), forward("mul"), forward("add")]
    analysis = made(*launches, fill_=at(3, "one_hot"), mul=at(4), add=at(5))
    saved = {
        each.rule: each.est_saving_ns
        for each in judge(analysis, (uncompiled.RULE, one_hot.RULE)).ranked
    }
    # Of three in a row two go; a third of that is counted already
    assert saved == {"one_hot": 300 * US, "uncompiled": 400 * US}
