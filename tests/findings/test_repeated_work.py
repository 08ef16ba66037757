"""What a step computes although it has it, or takes to the device although it was there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from profiler_ext.findings.code_of_lines import (
    calls_of_constants,
    equal_calls,
    products_with_zeros,
)
from profiler_ext.findings.facts import facts_of
from profiler_ext.findings.lines_of_functions import calls_per_step
from profiler_ext.findings.rules import (
    product_with_zeros,
    rebuilt_constant,
    repeated_call,
    scattered_weights,
    training_mode,
)
from profiler_ext.findings.unchanged_lines import made_of_unchanged, unchanged_call
from profiler_ext.records.lineage import Frame
from profiler_ext.records.recording import Function, Position, PythonLines
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
    made,
    only,
    placed,
)
from tests.findings.test_autograd_nodes import STEPS, Steps
from tests.handmade import Mark, interned

if TYPE_CHECKING:
    from profiler_ext.records.analysis import Analysis

GEMM = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT"


def called_twice(
    first: str,
    second: str,
    *,
    backward: tuple[bool, bool],
    drawn: bool = False,
    between: str = "",
    casts: bool = False,
    is_numbered: bool = False,
) -> Analysis:
    """Steps in which two lines of a function call a model of three products.

    casts: the first makes casts of weights, which have a backward.
    is_numbered: whether autograd numbers all ops, as it keeps their graph.
    """
    script, phases, places = Script(), [], {}
    codes = {7: first, 8: between, 9: second}
    for _ in range(3):
        for line, is_learning in ((7, backward[0]), (9, backward[1])):
            for number in range(3):
                script.launch(GEMM, 100 * US, op=f"aten::l{line}_{number}_convolution")
                phases.append("forward")
            for phase in ("forward", "backward") * (casts and line == 7):
                script.launch(ELEMENTWISE, 50 * US, op=f"aten::{phase}_to")
                phases.append(phase)
            if drawn:
                script.launch(ELEMENTWISE, 10 * US, op=f"aten::native_dropout_{line}")
                phases.append("forward")
            if line == 7 and between:
                script.launch(ELEMENTWISE, 10 * US, op="aten::update")
                phases.append("optimizer" if "optimizer" in between else "forward")
            for number in range(3 * is_learning):
                script.launch(GEMM, 200 * US, op=f"aten::l{line}_{number}_backward")
                phases.append("backward")
        script.wait()
        script.end_step()
    number = {"Sequence number": 1} if is_numbered else {}
    script.marks = [
        replace(each, args=each.args | number) if each.category == "cpu_op" else each
        for each in script.marks
    ]
    casting = {"module": "net.0", "stack": (Frame("/train.py", 7, "step", first),)}
    places["forward_to"] = at(3, "to", **casting)
    places["backward_to"] = at(3, "to", Phase.BACKWARD, **casting)
    for line in (7, 9):
        frames = (Frame("/train.py", line, "step", codes[line]),)
        places[f"native_dropout_{line}"] = at(4, "native_dropout", stack=frames)
        for number in range(3):
            own = {"module": f"net.{number}", "stack": frames}
            places[f"l{line}_{number}_convolution"] = at(3, "mm", **own)
            places[f"l{line}_{number}_backward"] = at(3, "mm", Phase.BACKWARD, **own)
    places["update"] = at(8, stack=(Frame("/train.py", 8, "step", between),))
    analysis = placed(script.analysis(), **places)
    return replace(analysis, launches=replace(analysis.launches, phase=interned(phases)))


def test_a_forward_for_metrics_has_the_outputs_of_the_training_step():
    step = called_twice("out = model(x)", "seen = model(x)", backward=(False, True))
    found = only(repeated_call.RULE, step)
    assert (found.location.file, found.location.line) == ("/train.py", 7)
    assert found.est_saving_ns == pytest.approx(300 * US, rel=0.02)
    assert found.remedy.startswith("take the outputs of the training step")
    after = called_twice("loss = f(model(x), y)", "hits(model(x), y)", backward=(True, False))
    assert only(repeated_call.RULE, after).location.line == 9


def test_a_call_with_a_backward_that_is_made_twice_loses_it_as_well():
    step = called_twice("a = net(x)", "b = net(x).sum()", backward=(True, True))
    found = only(repeated_call.RULE, step)
    assert (found.location.line, found.evidence[-1].value) == (9, 7)
    assert found.est_saving_ns == pytest.approx(900 * US, rel=0.02)


def test_casts_with_a_backward_make_no_call_that_learns_and_stay():
    """Autocast keeps a weight's cast for the next call, with a gradient in any mode."""
    step = called_twice(
        "old = model(x)", "new = model(x)", backward=(False, True), drawn=True, casts=True
    )
    found = only(repeated_call.RULE, step)
    assert (found.location.line, found.evidence[-1].value) == (7, 9)
    assert found.est_saving_ns == pytest.approx(310 * US, rel=0.02)


def test_the_forward_of_the_later_call_goes_where_the_first_has_a_graph() -> None:
    for is_numbered, rows in ((False, [0, 1, 2]), (True, [3, 4, 5])):
        step = called_twice(
            "a = net(x)", "b = net(x)", backward=(False, True), is_numbered=is_numbered
        )
        (candidate,) = repeated_call.RULE.judge(facts_of(step))
        assert candidate.location.line == 7
        # Of 9 launches a step
        assert candidate.launches.tolist() == [9 * at + row for at in range(3) for row in rows]


def test_an_op_that_launches_several_kernels_is_called_once():
    steps = Steps()
    for _ in range(STEPS):
        for _ in range(2):
            with steps.within("aten::convolution"):
                for _ in range(3):
                    steps.launch("convolve", Phase.FORWARD)
        steps.end_step()
    analysis = steps.analysis(convolution=at(4, "convolution"))
    assert calls_per_step(facts_of(analysis), np.arange(STEPS * 6)) == 2


def test_calls_of_inference_are_made_once():
    step = called_twice("a = net(x)", "b = net(x)", backward=(False, False))
    assert only(repeated_call.RULE, step).est_saving_ns == pytest.approx(300 * US, rel=0.02)


@pytest.mark.parametrize(
    ("first", "second", "between"),
    [
        ("a = net(x)", "b = net(y)", ""),
        ("a = net(x)", "b = other(x)", ""),
        ("x = net(x)", "b = net(x)", ""),
        ("a = net(x)", "b = net(x)", "x.add_(noise)"),
        ("a = net(x)", "b = net(x)", "x = torch.cat("),
        ("a = net(x)", "b = net(x)", "optimizer.first_step()"),
    ],
)
def test_other_arguments_and_updated_weights_are_another_call(
    first: str, second: str, between: str
):
    step = called_twice(first, second, backward=(True, True), between=between)
    assert is_silent(repeated_call.RULE, step)


def test_calls_with_dropout_that_both_learn_differ():
    step = called_twice("a = net(x)", "b = net(x)", backward=(True, True), drawn=True)
    assert is_silent(repeated_call.RULE, step)


def denoising(
    *,
    inner: str = "read = self.encode(text)",
    change: str = "x = x + clean",
    loop: str = "for t in times:",
    call: str = "clean = net(x, t, text)",
    draws: bool = False,
    then: bool = False,
    learns: str = "",
    deeper: str = "",
    before: str = "x = noise.half()",
) -> Analysis:
    """Steps of ten rounds, which each run an encoder of twenty launches and a denoiser.

    learns: whether the encoder's backward runs in each "round", or at the "end" of all.
    deeper: a line of the encoder's own.
    """
    sampling = {3: before, 4: loop, 5: call, 6: change}
    of_net = {13: "if read is None:", 14: inner, 15: "return self.blocks(x + read)"}
    if then:
        of_net = {14: inner, 15: "seen = self.blocks(read)", 16: "return x + seen"}
    outer, frame = Frame("/d.py", 5, "sample", sampling[5]), Frame("/d.py", 14, "forward", inner)
    encoder = (outer, frame, *([Frame("/e.py", 3, "forward", deeper)] if deeper else ()))
    places = {f"l{number}_mm": _under(f"text.{number}", *encoder) for number in range(20)}
    places["l0_dropout"] = _under("text.0", outer, frame, op="native_dropout")
    places["denoise"] = _under("blocks", outer, Frame("/d.py", 15, "forward", of_net[15]))
    places["begin"] = at(3, stack=(Frame("/d.py", 3, "sample", sampling[3]),))
    analysis = placed(_rounds(draws, learns).analysis(), **places)
    functions = (Function("/d.py", "sample"), Function("/d.py", "forward"))
    positions = tuple(
        Position(None, function, line, code=code)
        for function, codes in enumerate((sampling, of_net))
        for line, code in codes.items()
    )
    python = PythonLines(functions, (), positions, threads=(), clock=(), end_ns=0)
    per_round = ["forward"] * (21 + draws)
    behind = ["backward"] * 20
    rounds = {"round": (per_round + behind) * 10, "end": per_round * 10 + behind * 10}
    phases = interned(["forward", *rounds.get(learns, per_round * 10)] * 3)
    return replace(
        analysis,
        recording=replace(analysis.recording, python=python),
        launches=replace(analysis.launches, phase=phases),
    )


def _rounds(draws: bool, learns: str) -> Script:
    script = Script()
    for _ in range(3):
        script.launch(ELEMENTWISE, 2 * US, op="aten::begin")
        for _ in range(10):
            for number in range(20):
                script.launch(GEMM, 2 * US, op=f"aten::l{number}_mm")
            if draws:
                script.launch(GEMM, 2 * US, op="aten::l0_dropout")
            script.launch(GEMM, 2 * US, op="aten::denoise")
            _behind(script, learns == "round")
        _behind(script, 10 * (learns == "end"))
        script.wait()
        script.end_step()
    return script


def _behind(script: Script, rounds: int) -> None:
    for number in list(range(20)) * rounds:
        script.launch(GEMM, 2 * US, op=f"aten::l{number}_mm")


def _under(module: str, *stack: Frame, op: str = "mm") -> dict[str, Any]:
    return at(stack[-1].line, op, module=module, stack=stack)


def test_what_no_round_of_a_loop_changes_is_computed_before_it() -> None:
    found = only(repeated_call.RULE, denoising())
    assert (found.location.file, found.location.line) == ("/d.py", 14)
    assert found.summary.startswith("the same is computed 10 times")
    # Of 200 launches of 10 us those of nine rounds, on a CPU 1.45 times as fast
    assert found.est_saving_ns == pytest.approx(180 * 10 * US / 1.45, rel=0.05)


@pytest.mark.parametrize(
    "words",
    [
        {"inner": "read, _ = self.encode(text).chunk(2, -1)"},
        {"call": "clean = net(x, t, text if read is None else read)"},
    ],
)
def test_a_view_or_a_choice_of_what_no_round_changes_is_unchanged(words: dict[str, Any]) -> None:
    assert only(repeated_call.RULE, denoising(**words)).location.line == 14


def test_all_rounds_go_where_a_line_before_the_loop_calls_the_same() -> None:
    words = {"call": "clean = net(text)", "change": "x = x + 1"}
    for before, rounds in (("read = net(image)", 9), ("x, read = noise, net(text)", 10)):
        found = only(repeated_call.RULE, denoising(**words, before=before))
        assert (found.location.line, found.evidence[0].value) == (5, 21 * rounds)


def test_what_is_computed_of_what_no_round_changes_is_no_finding_of_its_own() -> None:
    alone, both = (only(repeated_call.RULE, denoising(then=then)) for then in (False, True))
    assert (both.location.line, both.location.code) == (14, alone.location.code)
    # Nine rounds of one launch more
    more_ns = both.est_saving_ns - alone.est_saving_ns
    assert more_ns == pytest.approx(9 * 10 * US / 1.45, rel=0.1)


@pytest.mark.parametrize(
    ("codes", "names"),
    [
        ({1: "k = f(text)", 2: "v = g(k)"}, {"text", "k", "v"}),
        ({1: "k = f(text)", 2: "v = g(k, x)"}, {"text", "k"}),
        ({1: "k = f(text)", 2: "k = g(k, x)"}, {"text"}),
        ({1: "k = f(text)", 2: "else:", 3: "k = g(text)", 4: "v = h(k)"}, {"text"}),
        ({1: "k = f(text)", 2: "k += x"}, {"text"}),
        ({1: "k = torch.randn_like(text)", 2: "v = g(k)"}, {"text"}),
        ({1: "text = f(text)"}, set()),
    ],
)
def test_names_that_follow_from_unchanged_ones_are_unchanged(
    codes: dict[int, str], names: set[str]
) -> None:
    assert made_of_unchanged(codes, {"text"}) == names


@pytest.mark.parametrize(
    "words",
    [
        {"loop": "for t, text in zip(times, texts):"},
        {"loop": "x = net(x, t, text)"},
        {"change": "text = text + clean"},
        {"change": "text[:, t] = clean"},
        {"change": "text.add_(clean)"},
        {"inner": "read = self.encode(text, x)"},
        {"inner": "read = self.encode(self.text)"},
        {"inner": "read = self.encode(text + 1)"},
        {"inner": "text = self.encode(text)"},
        {"inner": "read = text.to(other)"},
        {"draws": True},
    ],
)
def test_what_a_round_may_change_is_not_the_same(words: dict[str, Any]) -> None:
    assert is_silent(repeated_call.RULE, denoising(**words))


def test_what_learns_in_rounds_is_computed_once_if_its_backward_follows_all() -> None:
    found = only(repeated_call.RULE, denoising(learns="end"))
    assert found.location.line == 14
    assert found.est_saving_ns == pytest.approx(2 * 180 * 10 * US / 1.45, rel=0.05)
    assert is_silent(repeated_call.RULE, denoising(learns="round"))


def test_what_learns_and_keeps_a_state_counts_on_its_rounds() -> None:
    assert is_silent(repeated_call.RULE, denoising(learns="end", deeper="self.mem = f(self.mem)"))
    assert not is_silent(repeated_call.RULE, denoising(learns="end", deeper="y = f(self.mem)"))


def test_a_value_that_is_taken_or_computed_is_that_of_the_names_it_is_chosen_by() -> None:
    loop = Frame("/d.py", 5, "f", "own = bias_of(paths) if bias is None else bias")
    codes = {4: "for layer in layers:", 5: loop.code or "", 6: "x = layer(x, own)"}
    assert unchanged_call([loop], {("/d.py", "f", 5): codes}) == (loop, loop)
    codes |= {6: "bias = layer(x, own)"}
    assert unchanged_call([loop], {("/d.py", "f", 5): codes}) is None


def test_what_a_line_assigns_ends_what_was_called_with_it():
    calls = {1: "a = f(x, self.n)", 2: "b = g(f(x, self.n))", 3: "x += b", 4: "c = f(x, self.n)"}
    assert equal_calls(calls) == [("f(x, self.n)", [1, 2])]
    assert equal_calls({1: "a = f(x)", 2: "for x in xs:", 3: "b = f(x)"}) == []
    assert equal_calls({1: "a = f()", 2: "b = f()"}) == []
    assert equal_calls({1: "with torch.no_grad(): x = f(x)", 2: "y = f(x)"}) == []


def helped(
    code: str, *, layers: int = 4, op: str = "arange", learns: bool = True, caller: str = ""
) -> Analysis:
    """Steps of layers, each of which calls a function with twenty launches."""
    script, phases, places = Script(), [], {}
    calls = (Frame("/model.py", 90, "all", caller), Frame("/model.py", 5, "forward", code))
    for _ in range(3):
        for number in [*range(20)] * layers:
            name = f"l{number}_{op if number == 0 else 'pow'}"
            script.launch(ELEMENTWISE, 1 * US, op=f"aten::{name}")
            phases.append("forward")
            own = {"stack": calls, "module": "layers.0", "function": "helper"}
            places[name] = at(20 + number, "pow", **own)
        if learns:
            script.launch(ELEMENTWISE, 1 * US, op="aten::of_backward")
            phases.append("backward")
        script.wait()
        script.end_step()
    places["of_backward"] = at(9, "mul", Phase.BACKWARD)
    analysis = placed(script.analysis(), **places)
    return replace(analysis, launches=replace(analysis.launches, phase=interned(phases)))


def test_a_function_of_sizes_is_computed_once():
    found = only(rebuilt_constant.RULE, helped("mask = causal(x.shape[1], x.device)"))
    assert (found.location.file, found.location.line) == ("/model.py", 5)
    # 80 launches of 10 us on a CPU 1.45 times as fast
    assert found.est_saving_ns == pytest.approx(80 * 10 * US / 1.45, rel=0.1)
    assert only(rebuilt_constant.RULE, helped("mask = causal(seq_len)", layers=1, learns=False))


def test_what_each_layer_computes_of_the_same_attribute_is_computed_in_one_of_them():
    found = only(rebuilt_constant.RULE, helped("weight = norm(self.edge_index, len(x))"))
    assert found.est_saving_ns == pytest.approx(3 / 4 * 80 * 10 * US / 1.45, rel=0.1)


def test_what_each_layer_computes_of_what_all_are_given_is_computed_in_one_of_them():
    step = helped("weight = norm(edges, len(x))", caller="x = layer(x, edges)")
    found = only(rebuilt_constant.RULE, step)
    assert found.est_saving_ns == pytest.approx(3 / 4 * 80 * 10 * US / 1.45, rel=0.1)


@pytest.mark.parametrize(
    ("code", "more"),
    [
        ("scores = norm(x, len(x))", {"caller": "x = layer(x, edges)"}),
        ("weight = norm(edges)", {"caller": "x, edges = layer(x, edges)"}),
        ("weight = norm(edges)", {"caller": "x = layer(x)"}),
        ("k = self.to_k(edges)", {"caller": "x = layer(x, edges)"}),
        ("k = norm(edges, self.gain)", {"caller": "x = layer(x, edges)"}),
        ("w = dequantize(self.weight)", {}),
        ("w = self.dequantize(self.stored)", {}),
        ("edges = norm(edges)", {"caller": "x = layer(x, edges)"}),
        ("weight = norm(edges)", {"caller": "x = layer(x, edges)", "layers": 3}),
        ("noise = sample(x.shape)", {"op": "randn"}),
        ("weight = norm(self.edge_index)", {"layers": 1}),
        ("weight = norm(self.edge_index)", {"learns": False}),
        ("y = x.norm(self.edge_index)", {}),
    ],
)
def test_functions_of_tensors_and_of_chance_are_no_constants(code: str, more: dict[str, Any]):
    assert is_silent(rebuilt_constant.RULE, helped(code, **more))


def test_arguments_that_are_sizes_are_known_by_their_text():
    calls = {1: "a = f(x.shape[0], device=x.device)", 2: "b = f(self.at, T)", 3: "c = f(a)"}
    none = frozenset()
    assert calls_of_constants(calls) == {1: (True, none), 2: (False, none), 3: (False, {"a"})}
    assert calls_of_constants({1: "n = torch.arange(T)", 2: "f(T)", 3: "m = f()"}) == {}


def multiplied(code: str, *, duration_us: int = 300, behind: int = 1) -> Analysis:
    launches = [forward("mm", GEMM), *[backward("mm", GEMM)] * behind, forward("relu")]
    step = made(*launches, mm=at(3, "matmul", code=code), relu=at(4))
    duration_ns = step.launches.duration_ns // 300 * duration_us
    return replace(step, launches=replace(step.launches, duration_ns=duration_ns))


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("y = self.adjacency @ x", "torch.sparse.mm"),
        ("y = torch.matmul(norm_adj, x)", "torch.sparse.mm"),
        ("y = edges.to_dense().matmul(x)", "torch.sparse.mm"),
        ("y = torch.diag(d) @ x", "x * d"),
    ],
)
def test_a_product_with_a_matrix_of_zeros_takes_as_long_as_any(code: str, remedy: str):
    found = only(product_with_zeros.RULE, multiplied(code))
    assert (found.est_saving_ns, found.confidence.value) == (600 * US, "upper_bound")
    assert (found.location.line, found.remedy[: len(remedy)]) == (3, remedy)


def test_small_learned_and_other_matrices_are_none():
    assert is_silent(product_with_zeros.RULE, multiplied("y = adj @ x", duration_us=50))
    assert is_silent(product_with_zeros.RULE, multiplied("y = adj @ x", behind=2))
    assert is_silent(product_with_zeros.RULE, multiplied("y = adjusted @ x"))
    assert is_silent(product_with_zeros.RULE, multiplied("y = self.head(x) @ w"))


def test_what_returned_a_matrix_of_zeros_is_followed_to_its_product():
    lines = {1: "d = torch.diag_embed(s)", 2: "y = u @ d", 3: "d = d + 1", 4: "z = d @ u"}
    assert products_with_zeros(lines) == {2: True}


def test_dropout_and_statistics_of_a_batch_in_inference_can_go():
    statistics = "void at::native::batch_norm_collect_statistics_channels_last_kernel<float>"
    launches = (forward("native_dropout"), forward("mm", GEMM), forward("bn", statistics))
    places = {"native_dropout": at(3, "dropout"), "mm": at(4), "bn": at(5, "batch_norm")}
    found = only(training_mode.RULE, made(*launches, **places))
    assert (found.est_saving_ns, found.remedy[:12]) == (600 * US, "model.eval()")
    assert is_silent(training_mode.RULE, made(*launches, backward("mul"), **places))
    assert is_silent(training_mode.RULE, made(forward("mm", GEMM), mm=at(4)))


def recurrent(copies: int, op: str = "aten::_cudnn_rnn") -> Analysis:
    """Steps of an RNN that copies weights of its own in its call."""
    script = Script()
    for _ in range(3):
        begin_ns = script.now_ns
        for _ in range(copies):
            script.launch("Memcpy DtoD (Device -> Device)", 100 * US, op="aten::copy_")
        script.launch("void elemWiseRNNcell<float>", 300 * US, op="aten::cell")
        script.now_ns += 5 * US
        script.marks.append(Mark(op, "cpu_op", CPU, begin_ns, script.now_ns - begin_ns))
        script.wait()
        script.end_step()
    return placed(script.analysis(), copy_=at(3, "lstm"), cell=at(3, "lstm"), _cudnn_rnn=at(3))


def test_weights_of_an_rnn_that_lie_apart_are_copied_in_each_call():
    found = only(scattered_weights.RULE, recurrent(8))
    assert found.est_saving_ns == 800 * US
    assert found.remedy.startswith("rnn.flatten_parameters()")
    assert is_silent(scattered_weights.RULE, recurrent(2))
    assert is_silent(scattered_weights.RULE, recurrent(8, op="aten::copies"))


def test_attention_that_drops_scores_in_inference_loses_half_of_its_time() -> None:
    steps = Steps()
    for _ in range(STEPS):
        for kernels in (("unpack_cudnn", "sdpa"), ("sdpa",)):
            with steps.within("aten::attention"):
                for kernel in kernels:
                    steps.launch("_cudnn_attention_forward", Phase.FORWARD, kernel)
        steps.end_step()
    found = only(training_mode.RULE, steps.analysis(attention=at(4)))
    assert found.est_saving_ns == (300 + 150) * US
