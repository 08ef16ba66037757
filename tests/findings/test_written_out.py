"""Norms, activations and softmaxes that are written out: by the order of their ops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.findings.code_of_lines import products_of_patches
from profiler_ext.findings.rules import launch_bound, written_out
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.lineage import Frame
from profiler_ext.records.vocabulary import Phase, Scope
from tests.findings.stepping import (
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
from tests.handmade import interned

PRODUCT = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT"


def written(ops: str, code: str = "", **lines: int) -> Analysis:
    """Three steps of ops in a row, between two products."""
    names = ops.split()
    places = {name: at(lines.get(name, 7), code=code, module="block") for name in names}
    product = forward("mm", PRODUCT)
    return made(product, *map(forward, names), product, mm=at(3), **places)


@pytest.mark.parametrize(
    ("ops", "what", "launches"),
    [
        ("pow mean add rsqrt mul mul", "an RMS norm", 5),
        ("copy_ pow mean add rsqrt mul copy_ mul", "an RMS norm", 5),
        ("mul mean add sqrt div mul", "an RMS norm", 5),
        ("mean sub pow mean add sqrt div mul add", "a norm", 7),
        ("mean mean mean sub std add div", "a norm", 7),
        ("mean sub pow mean sub add sqrt div mul add", "a norm", 8),
        ("mean std sub mul add div add", "a norm", 6),
        ("mean var sub add rsqrt mul mul", "a norm", 6),
        ("var_mean sub add sqrt div", "a norm", 5),
        ("mul pow mul add mul tanh add mul", "GELU", 7),
        ("mul mul mul mul add mul tanh add mul", "GELU", 9),
        ("mul div erf add mul", "GELU", 4),
        ("softplus tanh mul", "Mish", 3),
        ("max sub exp sum div", "a softmax", 5),
        ("_softmax add log", "a log softmax", 3),
    ],
)
def test_what_torch_has_an_op_for_loses_all_but_one_of_its_kernels(
    ops: str, what: str, launches: int
) -> None:
    found = only(written_out.RULE, written(ops))
    assert found.summary == f"{what} is written out in several ops"
    assert (found.location.line, found.est_saving_ns) == (7, (launches - 1) * 300 * US)
    assert found.evidence[0].value == launches


def behind_with_norms() -> Analysis:
    """Three steps of five norms, whose CPU is behind: Python runs before each of their ops."""
    script = Script()
    for _ in range(3):
        for _ in range(5):
            script.launch(PRODUCT, 2 * US, op="aten::mm")
            for op in ("mean", "sub", "std", "add", "div"):
                script.now_ns += 20 * US
                script.launch(ELEMENTWISE, 2 * US, op=f"aten::{op}")
        script.end_step()
    places = {op: at(7, module="block") for op in ("mean", "sub", "std", "add", "div")}
    made = placed(script.analysis(), mm=at(3, module="block"), **places)
    phase = interned([Phase.FORWARD.value] * len(made.launches))
    return replace(made, launches=replace(made.launches, phase=phase))


def test_a_cpu_that_is_behind_loses_its_way_to_all_but_one_of_the_kernels() -> None:
    step = behind_with_norms()
    found = only(written_out.RULE, step)
    assert found.est_saving_ns == pytest.approx(5 * 4 * 30 * US / 1.45, rel=0.05)
    # What is left to say of the CPU is not about their line
    assert only(launch_bound.RULE, step).location.line == 3


@pytest.mark.parametrize(
    "ops",
    [
        "sub pow mean",  # a squared error
        "sigmoid mul",  # a gate
        "tanh mul",
        "exp mul sum div",  # weighted before it is summed
        "native_layer_norm gelu mul add",
        "mean sub div",  # relative to a mean
        "exp exp sum div",  # of one among others
        "pow mean sqrt mul",  # a scale, and no norm
    ],
)
def test_other_ops_in_a_row_are_none(ops: str) -> None:
    assert is_silent(written_out.RULE, written(ops))


@pytest.mark.parametrize(
    ("code", "is_swish"),
    [
        ("return x * torch.sigmoid(x)", True),
        ("y = torch.sigmoid(x) * x", True),
        ("y = x * x.sigmoid()", True),
        ("y = up * torch.sigmoid(gate)", False),
        ("y = torch.sigmoid(x) * x.mean()", False),
    ],
)
def test_a_sigmoid_gates_its_own_operand_by_the_text_of_the_line(code: str, is_swish: bool) -> None:
    step = written("sigmoid mul", code)
    if is_swish:
        assert only(written_out.RULE, step).remedy.startswith("F.silu")
    else:
        assert is_silent(written_out.RULE, step)


@pytest.mark.parametrize(
    ("code", "is_lerp"),
    [
        ("h = (1 - z) * n + z * h", True),
        ("h = (1.0 - self.t) * a + b * self.t", True),
        ("y = (1 - p) * a * b + c", False),
        ("y = (1 - z) * n * w + zz * h", False),
    ],
)
def test_an_interpolation_weighs_with_one_number_by_the_text_of_the_line(
    code: str, is_lerp: bool
) -> None:
    step = written("rsub mul mul add", code)
    if is_lerp:
        assert only(written_out.RULE, step).remedy.startswith("torch.lerp")
    else:
        assert is_silent(written_out.RULE, step)


def test_ops_with_a_product_in_between_or_in_compiled_code_are_none() -> None:
    norm = [forward(op) for op in ("pow", "mean", "add")]
    rest = [forward(op) for op in ("rsqrt", "mul")]
    places = {op: at(7) for op in ("pow", "mean", "add", "rsqrt", "mul")} | {"mm": at(3)}
    assert is_silent(written_out.RULE, made(*norm, forward("mm", PRODUCT), *rest, **places))
    step = made(*norm, *rest, **places)
    assert only(written_out.RULE, step).evidence[0].value == 5
    compiled = interned([Scope.COMPILED.value] * len(step.launches))
    step = replace(step, launches=replace(step.launches, scope=compiled))
    assert is_silent(written_out.RULE, step)


def test_an_rms_norm_is_one_kernel_since_a_version_of_torch() -> None:
    step = written("pow mean add rsqrt mul")
    settings = replace(step.recording.settings, torch_version="2.8.0")
    older = replace(step, recording=replace(step.recording, settings=settings))
    assert is_silent(written_out.RULE, older)


UNFOLDS = "patches = F.unfold(x, 3, padding=1)"


def convolved(product: str) -> Analysis:
    """Three steps that write patches of an image, copy them, and multiply them."""
    own = {"module": "conv"}
    lines = [
        Frame("/model.py", line, "forward", code) for line, code in ((5, UNFOLDS), (6, product))
    ]
    places = {
        "im2col": at(5, "im2col", stack=(lines[0],), **own),
        "copy_": at(6, "matmul", stack=(lines[1],), **own),
        "mm": at(6, "matmul", stack=(lines[1],), **own),
        "col2im": at(5, "col2im", Phase.BACKWARD, stack=(lines[0],), **own),
    }
    launches = [forward("im2col"), forward("copy_"), forward("mm", PRODUCT), backward("col2im")]
    return made(*launches, **places)


@pytest.mark.parametrize("product", ["y = self.weight.flatten(1) @ patches", "y = w @ patches"])
def test_a_convolution_by_unfold_loses_all_but_its_product(product: str) -> None:
    if "self" in product:
        found = only(written_out.RULE, convolved(product))
        assert (found.location.line, found.est_saving_ns) == (5, 3 * 300 * US)
    else:  # a weight of each sample, say
        assert is_silent(written_out.RULE, convolved(product))


@pytest.mark.parametrize(
    ("codes", "lines"),
    [
        ({1: UNFOLDS, 2: "w = self.weight.view(8, -1)", 3: "y = torch.matmul(w, patches)"}, {3}),
        ({1: UNFOLDS, 2: "patches = patches.transpose(1, 2)", 3: "y = patches @ self.w.t()"}, {3}),
        ({1: "y = F.linear(F.unfold(x, 3).mT, self.weight)"}, {1}),
        ({1: UNFOLDS, 2: "y = q @ patches"}, set()),
        ({1: UNFOLDS, 2: "y = self.key(x) @ patches"}, set()),
        ({1: UNFOLDS, 2: "w = self.weight", 3: "w = w * scores", 4: "y = w @ patches"}, set()),
        ({1: UNFOLDS, 2: "y = self.weight @ patches.softmax(1)"}, set()),
    ],
)
def test_lines_that_multiply_patches_by_a_weight(codes: dict[int, str], lines: set[int]) -> None:
    assert products_of_patches(codes) == lines
