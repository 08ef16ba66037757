"""Work that is thrown away, copied or computed again: a step with it, and one without."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from profiler_ext.findings import Confidence, SavingPer
from profiler_ext.findings.code_of_lines import (
    independent_calls,
    lines_from,
)
from profiler_ext.findings.rules import (
    discarded_work,
    eager_beside_compiled,
    frozen_network,
    gathered_rows,
    native_convolution,
    one_hot,
    pointwise_convolution,
    rebuilt_constant,
    slow_fft,
    split_batch,
    strided_copy,
    unmerged_weight,
)
from profiler_ext.records.lineage import Frame
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import (
    CPU,
    ELEMENTWISE,
    US,
    Script,
    at,
    backward,
    forward,
    is_silent,
    judged,
    made,
    only,
    placed,
)
from tests.findings.test_autograd_nodes import ENGINE, STEPS, Steps
from tests.handmade import Mark, interned

if TYPE_CHECKING:
    from profiler_ext.records.analysis import Analysis

GEMM = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT"
CONVOLVES = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc"
LOOKUP = "void at::native::vectorized_gather_kernel<16, long>(char*)"
IM2COL = "void at::native::im2col_kernel<float>(long, float const*)"
COMPLEX = "void at::native::vectorized_elementwise_kernel<2, c10::complex<float>>"


def bag(reduction: str = "mean", between: tuple[str, ...] = ()) -> Analysis:
    launches = [forward("gather", LOOKUP), *map(forward, between), forward(reduction)]
    launches += [backward("div"), backward("embedding_dense_backward")]
    return made(
        *launches,
        **{each: at(4, each) for each in between},
        **{reduction: at(5, reduction)},
        gather=at(4, "embedding"),
        div=at(5, "div", Phase.BACKWARD),
        embedding_dense_backward=at(4, "embedding_backward", Phase.BACKWARD),
    )


def test_embeddings_that_are_averaged_cost_their_rows_twice():
    found = only(gathered_rows.RULE, bag())
    assert found.est_saving_ns == (150 + 300 + 300) * US  # writes, the mean, its gradient
    assert (found.location.file, found.location.line) == ("/model.py", 4)
    assert found.remedy.startswith("nn.EmbeddingBag")


def test_embeddings_that_go_through_something_else_are_none():
    assert is_silent(gathered_rows.RULE, bag(between=("tanh",)))
    assert is_silent(gathered_rows.RULE, bag("tanh"))


def scores(op: str = "mul", lookup: str = LOOKUP, us: int = 300) -> Analysis:
    steps = Steps()
    for step in range(STEPS):
        steps.launch("gather", Phase.FORWARD, lookup, us)
        with steps.within(f"aten::{op}", 10 * step):
            steps.launch("part", Phase.FORWARD)
        steps.launch("sum", Phase.FORWARD)
        with steps.within("aten::loss", 10 * step + 1):
            pass
        with steps.within(ENGINE + "MulBackward0", 10 * step):
            steps.launch("neg", Phase.BACKWARD)
            steps.launch("sqrt", Phase.BACKWARD)
        steps.end_step()
    lines = {"gather": at(4, "embedding"), op: at(5, op), "sum": at(5, "sum")}
    behind = dict.fromkeys(("neg", "sqrt"), at(5, op, Phase.BACKWARD))
    return steps.analysis(**lines, **behind)


def test_scores_of_gathered_rows_cost_all_but_reading_them_and_half_of_their_backward():
    found = only(gathered_rows.RULE, scores())
    assert found.est_saving_ns == (150 + 300 + 300 + 2 * 150) * US
    assert (found.location.line, found.evidence[2].value) == (4, 5)
    assert found.remedy.startswith("a product with all rows")


def test_distances_to_gathered_rows_are_scores_too():
    assert only(gathered_rows.RULE, scores("sub")).est_saving_ns == 1050 * US


def test_rows_that_are_few_or_go_through_another_op_are_no_scores():
    assert is_silent(gathered_rows.RULE, scores("tanh"))
    assert is_silent(gathered_rows.RULE, scores(us=70))


def messages(op: str = "index_select", between: str = "new_zeros") -> Analysis:
    launches = [forward("gather", LOOKUP), forward(between), forward("scatter_add_")]
    launches += [backward("gathers"), backward("adds")]
    return made(
        *launches,
        **{between: at(5, between)},
        gather=at(4, op),
        scatter_add_=at(6),
        gathers=at(6, "gather", Phase.BACKWARD),
        adds=at(4, "index_select_backward", Phase.BACKWARD),
    )


def test_messages_over_edges_are_a_product_with_a_sparse_matrix():
    found = only(gathered_rows.RULE, messages())
    assert found.est_saving_ns == int(0.4 * 4 * 300 * US)
    assert (found.location.line, found.evidence[2].value) == (4, 6)
    assert found.remedy.startswith("torch.sparse.mm")


def test_messages_that_a_layer_computes_are_none():
    assert is_silent(gathered_rows.RULE, messages(between="mm"))


def weights(
    module: str, *more: tuple[str, str, Phase], op: str = "mm", beside: str = ""
) -> Analysis:
    launches = [forward("mm", GEMM), forward("add"), forward("conv", CONVOLVES), *more]
    own = at(3, op, module=module)
    return made(*launches, mm=own, add=at(4, "add", module=beside or "other"), conv=at(5))


def test_parametrizations_of_inference_are_computed_once():
    path = "ups.0.parametrizations.weight.0"
    found = only(unmerged_weight.RULE, weights(path))
    assert (found.est_saving_ns, found.location.line) == (300 * US, 3)
    assert found.remedy.startswith("parametrize.remove_parametrizations")
    assert only(unmerged_weight.RULE, weights("conv", op="_weight_norm")).location.line == 3
    assert is_silent(unmerged_weight.RULE, weights(path, backward("mm")))


@pytest.mark.parametrize(
    "path", ["q_proj.lora_A.default", "q_proj.lora_a", "q_proj.lora_layer.down", "q_proj.lokr_w1"]
)
def test_adapters_of_inference_are_merged_with_what_adds_their_result(path: str):
    found = only(unmerged_weight.RULE, weights(path, beside="q_proj"))
    assert found.est_saving_ns == 600 * US
    assert "merge_and_unload" in found.remedy
    assert only(unmerged_weight.RULE, weights(path)).est_saving_ns == 300 * US


@pytest.mark.parametrize("path", ["encoder.exploration", "floral.norm", "blocks.0.mlp"])
def test_other_modules_are_no_adapters(path: str):
    assert is_silent(unmerged_weight.RULE, weights(path))


def convolved(kernel: str) -> Analysis:
    own = at(3, "conv1d", module="w_1")
    launches = [forward("copy_"), forward("cudnn_convolution", kernel), forward("add_")]
    return made(*launches, backward("mm", GEMM), copy_=own, cudnn_convolution=own, add_=own)


def test_a_convolution_that_runs_as_a_product_could_be_a_linear_layer():
    found = only(pointwise_convolution.RULE, convolved(GEMM))
    assert (found.est_saving_ns, found.location.line) == (600 * US, 3)
    assert found.remedy.startswith("nn.Linear")
    assert is_silent(pointwise_convolution.RULE, convolved(CONVOLVES))


def test_transforms_of_an_awkward_length_could_take_a_quarter():
    slow = "void regular_bluestein_fft<4096u, EPT<16u>, 1u, 1u, (padding_t)1>"
    launches = (forward("_fft_r2c", slow), forward("mul"))
    found = only(slow_fft.RULE, made(*launches, _fft_r2c=at(3), mul=at(4)))
    assert (found.est_saving_ns, found.location.line) == (225 * US, 3)
    plain = (forward("_fft_r2c", "void regular_fft<2048u, EPT<16u>>"), forward("mul"))
    assert is_silent(slow_fft.RULE, made(*plain, _fft_r2c=at(3), mul=at(4)))


def dropped(drawn_us: int, op: str = "bernoulli_", reader: str = "mul") -> Analysis:
    script = Script()
    for _ in range(3):
        script.launch(GEMM, 500 * US, op="aten::mm")
        script.launch("distribution", drawn_us * US, op=f"aten::{op}")
        script.launch("elementwise", 300 * US, op=f"aten::{reader}")
        script.launch("elementwise", 300 * US, op="aten::mul_backward")
        script.wait()
        script.end_step()
    branch = at(7, op, module="blocks.0")
    analysis = placed(
        script.analysis(),
        mm=at(3, module="blocks.0.mlp"),
        **{op: branch, reader: at(8, reader, module="blocks.0")},
        mul_backward=at(8, "mul", Phase.BACKWARD, module="blocks.0"),
    )
    phases = interned(["forward", "forward", "forward", "backward"] * 3)
    return replace(analysis, launches=replace(analysis.launches, phase=phases))


def test_a_branch_of_which_samples_are_zeroed_is_named_without_a_saving():
    found = only(discarded_work.RULE, dropped(2))
    assert (found.location.line, found.saving_per) == (8, SavingPer.UNKNOWN)
    assert [each.value for each in found.evidence] == [1, (500 + 2 + 300 + 300) * US]


def test_dropout_by_hand_and_noise_that_is_added_are_none():
    assert is_silent(discarded_work.RULE, dropped(200))
    assert is_silent(discarded_work.RULE, dropped(2, reader="sub"))


def scored(function: str, *before: str) -> Analysis:
    stack = (Frame("/train.py", 7, function, "loss = model(x)"),)
    launches = [*map(forward, before), forward("mm", GEMM), forward("_log_softmax")]
    return made(
        *launches,
        backward("mm_backward", GEMM),
        **{each: at(2, each) for each in before},
        mm=at(3, "linear", stack=stack),
        _log_softmax=at(4, "cross_entropy_loss", stack=stack),
        mm_backward=at(3, "mm", Phase.BACKWARD, stack=stack),
    )


def test_the_head_of_a_masked_language_model_scores_words_that_the_loss_ignores():
    found = only(discarded_work.RULE, scored("train_masked_lm"))
    assert found.est_saving_ns == int(0.85 * 900 * US)
    assert (found.location.line, found.confidence.value) == (3, "upper_bound")


def test_a_head_of_selected_words_and_one_of_all_are_none():
    assert is_silent(discarded_work.RULE, scored("train_masked_lm", "index_select"))
    assert is_silent(discarded_work.RULE, scored("train_causal_lm"))


def prefilled(
    code: str, following: str, rows: int = 4096, converts: str = "aten::argmax"
) -> Analysis:
    script = Script()
    for _ in range(3):
        script.launch(LOOKUP, 10 * US, op="aten::gather", grid=[rows, 1, 1])
        script.launch(GEMM, 300 * US, op="aten::mm")
        script.launch("elementwise", 10 * US, op=converts)
        script.wait()
        script.end_step()
    analysis = placed(
        script.analysis(),
        copy_=at(4, "to", code=following),
        gather=at(2, "embedding"),
        mm=at(3, "linear", code=code),
        argmax=at(3 if code == following else 4, "argmax", code=following),
    )
    phases = interned(["forward"] * 9)
    return replace(analysis, launches=replace(analysis.launches, phase=phases))


@pytest.mark.parametrize(
    ("code", "following"),
    [
        ("logits = self.head(x)", "token = logits[:, -1].argmax(-1)"),
        ("logits = self.head(x)", "token = logits[:, -1, :].argmax(-1)"),
        ("return self.head(x)[:, -1].argmax(-1)",) * 2,
    ],
)
def test_positions_of_which_the_last_is_read_cost_the_last_layer(code: str, following: str):
    found = only(discarded_work.RULE, prefilled(code, following))
    assert (found.est_saving_ns, found.location.line) == (300 * US, 3)
    assert is_silent(discarded_work.RULE, prefilled(code, following, rows=64))


@pytest.mark.parametrize("method", ["float()", "to(dtype)"])
def test_what_converts_all_positions_goes_with_the_product(method: str):
    code = f"return logits.{method}[:, -1]"
    analysis = prefilled("logits = self.head(x)", code, converts="aten::copy_")
    found = only(discarded_work.RULE, analysis)
    assert (found.est_saving_ns, found.location.line) == (310 * US, 3)
    analysis = prefilled("logits = self.head(x)", code, converts="aten::argmax")
    assert only(discarded_work.RULE, analysis).est_saving_ns == 300 * US


def test_a_last_position_that_is_taken_before_the_layer_is_none():
    code = "return self.head(x[:, -1]).argmax(-1)"
    assert is_silent(discarded_work.RULE, prefilled(code, code))
    assert is_silent(discarded_work.RULE, prefilled("y = self.head(x)", "y = y.argmax(-1)"))


def normed(count: int, kernel: str = "void at::native::elementwise_kernel<128, 2>") -> Analysis:
    launches = [forward("copy_", kernel), forward("layer_norm"), backward("mm", GEMM)]
    return made(*launches, count=count, copy_=at(3, "layer_norm"), layer_norm=at(3))


def test_norms_that_copy_a_strided_tensor_again_keep_one_copy():
    found = only(strided_copy.RULE, normed(4))
    assert found.est_saving_ns == int(3 / 4 * 4 * 300 * US)
    assert (found.location.line, found.remedy[:17]) == (3, "one .contiguous()")


def test_one_copy_and_casts_of_norms_are_none():
    assert is_silent(strided_copy.RULE, normed(1))
    cast = (
        "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda>"
    )
    assert is_silent(strided_copy.RULE, normed(4, cast))


@pytest.mark.parametrize(
    ("op", "code"),
    [("repeat", "x = x.repeat(1, n, 1)"), ("contiguous", "x = x.expand(-1, n, -1).contiguous()")],
)
def test_a_copy_that_a_pointwise_op_would_broadcast_is_reported(op: str, code: str):
    copied = at(3, op, code=code)
    launches = (forward("copy_"), forward("sub"))
    found = only(strided_copy.RULE, made(*launches, copy_=copied, sub=at(4)))
    assert (found.est_saving_ns, found.location.line) == (300 * US, 3)
    assert "broadcast" in found.remedy
    launches = (forward("copy_"), forward("cat"))
    assert is_silent(strided_copy.RULE, made(*launches, copy_=copied, cat=at(4)))


DISPATCH = {
    3: "slots = F.one_hot(place, n)",
    4: "dispatch = mask[..., None] * slots[:, :, None]",
    5: 'inputs = torch.einsum("gsec,gsm->egcm", dispatch, x)',
    6: "y = x * 2",
}


def test_lines_with_one_hot_rows_are_known_by_their_text():
    assert lines_from(DISPATCH, "one_hot") == ({3, 4}, True)
    assert lines_from({3: "a = F.one_hot(x, n)", 4: "y = a @ w"}, "one_hot") == ({3}, True)
    assert lines_from({3: "a = F.one_hot(x, n)", 4: "y = a.sum(1)"}, "one_hot") == ({3, 4}, False)


def test_products_with_one_hot_rows_cost_what_makes_their_operand():
    names = {3: "fill_", 4: "mul", 5: "bmm", 6: "tanh"}
    places = {
        name: at(line, "one_hot" if line == 3 else name, code=DISPATCH[line])
        for line, name in names.items()
    }
    found = only(one_hot.RULE, made(*map(forward, names.values()), **places))
    assert (found.est_saving_ns, found.confidence.value) == (600 * US, "estimated")


def masked(calls: int) -> Analysis:
    """Steps of layers, each of which launches nothing but its mask."""
    script = Script()
    for _ in range(3):
        for layer in range(calls):
            for number in range(8):
                script.launch("elementwise", 1 * US, op=f"aten::ge_{layer}_{number}")
        script.wait()
        script.end_step()
    call = Frame("/mask.py", 5, "mask", "return create_block_mask(causal, None, None, n, n)")
    places = {
        f"ge_{layer}_{number}": at(number, "ge", module=f"blocks.{layer}", stack=(call,))
        for layer in range(calls)
        for number in range(8)
    }
    analysis = placed(script.analysis(), **places)
    phases = interned(["forward"] * len(analysis.launches))
    return replace(analysis, launches=replace(analysis.launches, phase=phases))


def test_a_block_mask_of_each_layer_could_be_made_once():
    found = only(rebuilt_constant.RULE, masked(4))
    assert (found.location.file, found.location.line) == ("/mask.py", 5)
    assert "4 times a step" in found.summary
    # Of 32 launches of 10 us each on a CPU 1.45 times as fast a quarter is left
    assert found.est_saving_ns == pytest.approx(3 / 4 * 32 * 10 * US / 1.45, rel=0.1)
    assert is_silent(rebuilt_constant.RULE, masked(1))


def test_complex_numbers_in_a_compiled_graph_lose_two_thirds():
    launches = (forward("mul", COMPLEX), forward("cos", "triton_poi_0"), forward("mm", GEMM))
    analysis = made(*launches, mul=at(3), cos=at(4), mm=at(5, function="attend"))
    compiled = replace(analysis.launches, scope=interned(["compiled"] * 9))
    found = only(eager_beside_compiled.RULE, replace(analysis, launches=compiled))
    assert (found.est_saving_ns, found.location.line) == (int(2 / 3 * 600 * US), 3)
    assert judged(eager_beside_compiled.RULE, analysis).ranked == ()


def called(first: str, second: str, inner: str = "forward", line: int = 8) -> Analysis:
    """Steps in which two lines of a function call a model, each with twenty launches."""
    script = Script()
    for _ in range(3):
        for call in range(2):
            for number in range(20):
                script.launch(f"elementwise_{number}", 1 * US, op=f"aten::mul_{call}_{number}")
        script.wait()
        script.end_step()
    frames = (Frame("/train.py", 7, "step", first), Frame("/train.py", line, "step", second))
    places = {
        f"mul_{call}_{number}": at(
            number,
            "mul",
            module=f"net.{number}",
            stack=(frames[call], Frame("/model.py", number, inner, "...")),
        )
        for call in range(2)
        for number in range(20)
    }
    analysis = placed(script.analysis(), **places)
    phases = interned(["forward"] * len(analysis.launches))
    return replace(analysis, launches=replace(analysis.launches, phase=phases))


def test_a_model_that_is_called_for_two_halves_costs_the_launches_of_one():
    found = only(split_batch.RULE, called("a = model(x, t, text)", "b = model(x, t, none)"))
    assert (found.location.file, found.location.line) == ("/train.py", 7)
    assert "called 2 times" in found.summary
    # Half of 40 launches of 10 us, on a CPU 1.45 times as fast
    assert found.est_saving_ns == pytest.approx(20 * 10 * US / 1.45, rel=0.2)


@pytest.mark.parametrize(
    ("first", "second", "inner"),
    [
        ("a = model(x)", "b = model(a)", "forward"),
        ("a = model(x)", "b = other(x)", "forward"),
        ("a = model(x)", "b = model(x)", "forward"),
        ("a = rotate(x)", "b = rotate(y)", "rotate"),
        ("a = model(x) if flag else model(y)", "b = a * 2", "forward"),
    ],
)
def test_calls_that_need_each_other_and_helpers_are_no_halves(first: str, second: str, inner: str):
    assert is_silent(split_batch.RULE, called(first, second, inner))


def test_calls_of_one_line_and_what_depends_on_them_are_known_by_their_text():
    assert independent_calls({1: "loss = f(net(a), net(b))"}) == {"net": {1: 2}}
    steps = {1: "a = net(x)", 2: "y = x - a", 3: "b = net(y)"}
    assert independent_calls(steps) == {}
    assert independent_calls({1: "y = net(net(x))"}) == {}


_BY_CUDNN = "torch.backends.cudnn"


def depthwise(kernel: str, op: str = "conv2d") -> Analysis:
    return made(forward("conv", kernel), forward("mul"), conv=at(3, op), mul=at(4))


@pytest.mark.parametrize(
    ("kernel", "remedy", "saved_ns"),
    [
        (
            "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3>",
            "channels",
            200 * US,
        ),
        (IM2COL, _BY_CUDNN, 300 * US),
    ],
)
def test_convolutions_without_cudnn_are_named_with_their_time(kernel, remedy, saved_ns):
    found = only(native_convolution.RULE, depthwise(kernel))
    assert (found.location.line, found.est_saving_ns) == (3, saved_ns)
    assert found.evidence[1].value == 300 * US
    assert found.remedy.startswith(remedy)


def test_the_products_of_windows_are_three_quarters_faster_in_tf32():
    script = Script()
    for _ in range(3):
        script.launch(IM2COL, 100 * US, op="aten::conv")
        script.launch("cutlass_80_simt_sgemm_128x64_8x5_nn", 400 * US, op="aten::conv")
        script.wait()
        script.end_step()
    analysis = placed(script.analysis(), conv=at(3, "conv2d"))
    assert only(native_convolution.RULE, analysis).est_saving_ns == 100 * US
    op = np.ma.repeat(analysis.launches.op_event[::2], 2)
    analysis = replace(analysis, launches=replace(analysis.launches, op_event=op))
    found = only(native_convolution.RULE, analysis)
    assert found.est_saving_ns == (100 + 300) * US
    assert found.evidence[3].value == 400 * US


def test_windows_that_a_program_unfolds_itself_and_cudnn_are_none():
    assert is_silent(
        native_convolution.RULE, depthwise("void at::native::im2col_kernel<>", "unfold")
    )
    assert is_silent(native_convolution.RULE, depthwise(CONVOLVES))


def taught(products: int, trained: str = "student", average: str = "") -> Analysis:
    """Steps of a teacher, which only runs, and a student."""
    script = Script()
    for _ in range(3):
        for _ in range(products * bool(average)):
            script.launch("vectorized_elementwise_kernel", 5 * US, op="aten::lerp_")
        for _ in range(products):
            script.launch(GEMM, 100 * US, op="aten::mm")
        script.launch(GEMM, 300 * US, op="aten::addmm")
        script.launch(GEMM, 300 * US, op="aten::mm_backward")
        script.wait()
        script.end_step()
    stack = (Frame("/train.py", 9, "step", "wanted = teacher(x)"),)
    analysis = placed(
        script.analysis(),
        lerp_=at(2, code=average),
        mm=at(3, module="teacher.0", stack=stack),
        addmm=at(4, module="student"),
        mm_backward=at(4, "mm", Phase.BACKWARD, module=trained),
    )
    moves = ["other"] * (products * bool(average))
    phases = interned((moves + ["forward"] * (products + 1) + ["backward"]) * 3)
    return replace(analysis, launches=replace(analysis.launches, phase=phases))


def test_a_network_without_a_backward_is_named_where_it_is_called():
    found = only(frozen_network.RULE, taught(6))
    assert (found.location.file, found.location.line) == ("/train.py", 9)
    assert [each.value for each in found.evidence] == [6, 600 * US]
    assert found.est_saving_ns == 600 * US
    assert (found.saving_per, found.confidence) == (SavingPer.STEP, Confidence.UPPER_BOUND)


def test_a_network_that_follows_the_trained_one_has_to_run():
    assert is_silent(frozen_network.RULE, taught(6, average="kept.lerp_(weight, 0.01)"))
    assert not is_silent(frozen_network.RULE, taught(6, average="x.add_(y)"))


def test_a_layer_without_a_backward_is_no_network_but_a_head_that_no_loss_reads():
    found = only(frozen_network.RULE, taught(1))
    assert found.summary == "layers run whose results have no backward"
    assert (found.location.line, found.est_saving_ns) == (9, 100 * US)


def test_a_network_that_is_trained_is_none_next_to_a_layer_that_is_not():
    found = only(frozen_network.RULE, taught(6, trained="teacher.0"))
    assert (found.location.line, found.evidence[0].value) == (4, 1)


def with_gradients(adding: range, calls: int = 1) -> Analysis:
    """Steps of a head on five layers, of which some add to gradients of the step before."""
    script, layers = Script(), range(5)
    accumulates = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    for _ in range(3):
        for layer in [*layers] * calls:
            script.launch(GEMM, 100 * US, op=f"aten::l{layer}_convolution")
        script.launch(GEMM, 100 * US, op="aten::head_mm")
        script.work(accumulates, 5 * US, "cpu_op")
        for layer in reversed(layers):
            script.launch(GEMM, 200 * US, op=f"aten::l{layer}_mm_backward")
            begin_ns = script.now_ns
            if layer in adding:
                script.launch(ELEMENTWISE, 10 * US, op=f"aten::add_{layer}")
            script.now_ns += 5 * US
            span = CPU, begin_ns, script.now_ns - begin_ns
            script.marks.append(Mark(accumulates, "cpu_op", *span))
        script.launch(ELEMENTWISE, 10 * US, op="aten::update")
        script.wait()
        script.end_step()
    places = {"head_mm": at(9, "mm", module="head")}
    for layer in layers:
        own = {"module": f"body.{layer}"}
        places[f"l{layer}_convolution"] = at(3, "mm", **own)
        places[f"l{layer}_mm_backward"] = at(3, "mm", Phase.BACKWARD, **own)
        places[f"add_{layer}"] = at(3, "add_", Phase.GRADIENT_ACCUMULATION, **own)
    analysis = placed(script.analysis(), **places)
    of_layers = [
        phase
        for layer in reversed(layers)
        for phase in ("backward", *(["gradient_accumulation"] if layer in adding else []))
    ]
    phases = ["forward"] * (5 * calls + 1) + of_layers + ["optimizer"]
    return replace(analysis, launches=replace(analysis.launches, phase=interned(phases * 3)))


def test_gradients_that_add_up_from_step_to_step_are_of_no_optimizer():
    found = only(frozen_network.RULE, with_gradients(range(5)))
    assert found.summary == "gradients of parameters that no optimizer updates"
    assert (found.location.line, found.saving_per) == (3, SavingPer.STEP)
    assert found.est_saving_ns == pytest.approx(5 * 210 * US, rel=0.02)


def test_gradients_in_front_of_what_is_trained_count_alone():
    # The first layer is trained: autograd has to come to it
    assert is_silent(frozen_network.RULE, with_gradients(range(1, 5)))
    # The last one is
    found = only(frozen_network.RULE, with_gradients(range(4)))
    assert found.est_saving_ns == pytest.approx(4 * 210 * US, rel=0.02)


def test_gradients_that_add_up_within_a_step_are_none():
    assert is_silent(frozen_network.RULE, with_gradients(range(5), calls=2))
