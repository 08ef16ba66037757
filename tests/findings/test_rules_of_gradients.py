"""Gradients that are zeroed or mostly zeros, and arithmetic in float64."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.findings.ranking import judge
from profiler_ext.findings.rules import (
    contended_sum,
    dense_embedding_gradients,
    dtype_conversion,
    float64,
    frozen_network,
    uncompiled,
    zeroed_gradients,
)
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import CPU, US, Script, is_silent, only, placed
from tests.findings.test_autograd_nodes import ACCUMULATES, ENGINE, GEMM, STEPS, Steps, at
from tests.handmade import Mark, interned

_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, float>"
_DOUBLE = "void at::native::elementwise_kernel<at::native::BinaryFunctor<double, double> >"
_CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>"


def made(*launches: tuple[str, int, str, Phase], of_values: bool = False) -> Analysis:
    """Three steps of launches: kernel, time, op and phase.

    What accumulates gradients is of parameters, or of values that are used several times.
    """
    script = Script()
    node = "NativeLayerNormBackward0" if of_values else "torch::autograd::AccumulateGrad"
    for _ in range(3):
        for kernel, duration_ns, op, phase in launches:
            begin_ns = script.now_ns
            script.launch(kernel, duration_ns, op=op)
            if phase is Phase.GRADIENT_ACCUMULATION:
                name, script.now_ns = (
                    f"autograd::engine::evaluate_function: {node}",
                    script.now_ns + 1,
                )
                span_ns = script.now_ns - begin_ns
                script.marks.append(Mark(name, "cpu_op", CPU, begin_ns, span_ns))
        script.wait()
        script.end_step()
    analysis = script.analysis()
    phases = interned([phase.value for *_, phase in launches] * 3)
    return replace(analysis, launches=replace(analysis.launches, phase=phases))


def zeroed(
    passes: int = 1, zero: str = "aten::_foreach_zero_", *, of_values: bool = False
) -> Analysis:
    forward = (_ELEMENTWISE, 100 * US, "aten::mul", Phase.FORWARD)
    backward = (_ELEMENTWISE, 100 * US, "aten::mm", Phase.BACKWARD)
    add = (_ELEMENTWISE, 30 * US, "aten::add_", Phase.GRADIENT_ACCUMULATION)
    each = [forward, backward, add, add]
    zeroing = (_ELEMENTWISE, 50 * US, zero, Phase.OPTIMIZER)
    return made(*each * passes, zeroing, of_values=of_values)


@pytest.mark.parametrize(("passes", "saved_us"), [(1, 110), (2, 110)])
def test_zeroing_and_the_first_additions_are_saved(passes: int, saved_us: int):
    found = only(zeroed_gradients.RULE, zeroed(passes))
    assert found.est_saving_ns == saved_us * US
    assert found.evidence[3].value == passes


def test_gradients_that_are_added_without_zeros_are_none():
    assert is_silent(zeroed_gradients.RULE, zeroed(zero="aten::_foreach_mul_"))


def test_sums_of_the_gradients_of_a_value_that_is_used_twice_are_none():
    assert is_silent(zeroed_gradients.RULE, zeroed(of_values=True))


def embedding(filled_us: int, read_us: int = 20, update: str = "aten::_foreach_add_") -> Analysis:
    analysis = made(
        (_ELEMENTWISE, read_us * US, "aten::gather", Phase.FORWARD),
        (_ELEMENTWISE, filled_us * US, "aten::fill_", Phase.BACKWARD),
        (_ELEMENTWISE, 1000 * US, update, Phase.OPTIMIZER),
    )
    line = {"file": "/model.py", "line": 5}
    return placed(analysis, gather=line, fill_=line | {"aten_op": "aten::embedding_backward"})


def test_zeros_that_take_far_longer_than_the_rows_are_a_dense_gradient():
    found = only(dense_embedding_gradients.RULE, embedding(200))
    # The zeros, and an update that passes over as many bytes three times.
    assert found.est_saving_ns == 200 * US + 3 * 200 * US
    assert (found.location.file, found.location.line) == ("/model.py", 5)


def test_an_update_saves_no_more_than_it_takes():
    found = only(dense_embedding_gradients.RULE, embedding(200, update="aten::_fused_adamw_"))
    assert found.est_saving_ns == 200 * US + 1000 * US


def test_a_batch_that_reads_much_of_the_table_is_none():
    assert is_silent(dense_embedding_gradients.RULE, embedding(60))


def rotary(kernel: str = _DOUBLE, phase: Phase = Phase.FORWARD, *, cast_us: int = 60) -> Analysis:
    cast = (_CAST, cast_us * US, "aten::copy_", phase)
    analysis = made((kernel, 200 * US, "aten::mul", phase), cast)
    line = {"file": "/model.py", "line": 3, "function": "rotate", "code": "x * cos"}
    return placed(analysis, mul=line, copy_=line | {"line": 4})


def test_float64_costs_half_of_its_kernels_and_the_casts_of_the_function():
    found = only(float64.RULE, rotary())
    assert found.est_saving_ns == 100 * US + 60 * US
    assert (found.location.file, found.location.line) == ("/model.py", 3)
    assert found.remedy.startswith("the float64 operand")


def test_a_cast_that_takes_far_longer_than_the_arithmetic_is_of_other_tensors():
    assert only(float64.RULE, rotary(cast_us=450)).est_saving_ns == 100 * US


def test_a_model_in_float64_is_named_with_its_convolutions():
    gradient = "void cudnn::detail::dgrad_engine<256, 6, false>(int, int, double const*, float)"
    forward = "void implicit_convolve_dgemm<128, 6, true>(int, int, int, double const*, int)"
    scalars = "void at::native::multi_tensor_apply_kernel<4>(float const*, double, double)"
    analysis = made(
        (forward, 100 * US, "aten::cudnn_convolution", Phase.FORWARD),
        (gradient, 200 * US, "aten::convolution_backward", Phase.BACKWARD),
        (scalars, 50 * US, "aten::_foreach_add_", Phase.OPTIMIZER),
        ("void Adam<double, 4>", 80 * US, "aten::_fused_adamw_", Phase.OPTIMIZER),
    )
    line = {"file": "/model.py", "line": 5, "function": "forward"}
    found = only(float64.RULE, placed(analysis, cudnn_convolution=line, convolution_backward=line))
    assert found.est_saving_ns == (100 + 200) * US // 2
    assert found.remedy.startswith("model.float()")


def test_float32_kernels_and_an_optimizers_scalars_are_none():
    assert is_silent(float64.RULE, rotary(kernel=_ELEMENTWISE))
    scalar = "void nan_to_num_kernel<std::optional<double>, std::array<char*, 2ul>>(float)"
    assert is_silent(float64.RULE, rotary(kernel=scalar))
    assert is_silent(float64.RULE, rotary(phase=Phase.OPTIMIZER))


def test_what_one_cause_counts_the_general_rules_leave_out():
    rules = (float64.RULE, dtype_conversion.RULE, uncompiled.RULE)
    assert [each.rule for each in judge(rotary(), rules).ranked] == ["float64"]


def summed(added_us: int, *, reads: int = 1, op: str = "scatter_add_") -> Analysis:
    """Steps that read rows by an index, and add their gradients by the same index."""
    launches = [(_ELEMENTWISE, 40 * US, "aten::gather", Phase.FORWARD)] * reads
    added = (_ELEMENTWISE, added_us * US, f"aten::{op}", Phase.BACKWARD)
    line = {"file": "/model.py", "line": 5}
    own = {"gather": line, op: line | {"phase": Phase.BACKWARD}}
    return placed(made(*launches, added), **own)


@pytest.mark.parametrize("op", ["scatter_add_", "index_add_"])
def test_adding_that_takes_far_longer_than_reading_waits_for_itself(op: str):
    found = only(contended_sum.RULE, summed(400, op=op))
    assert (found.location.line, found.est_saving_ns) == (5, (400 - 3 * 40) * US)
    assert found.evidence[-1].value == 10


def test_adding_that_takes_about_as_long_or_of_other_values_is_none():
    assert is_silent(contended_sum.RULE, summed(200))
    assert is_silent(contended_sum.RULE, summed(400, reads=2))


def criticized(*, adds: int = 5, generates: bool = True) -> Analysis:
    """Steps of a generator behind five layers, some of which add to gradients that are there."""
    steps = Steps()
    for _ in range(STEPS):
        for layer in range(5):
            with steps.within(f"aten::layer_{layer}"):
                steps.launch("mm", Phase.FORWARD, GEMM, 100)
        for layer in range(5):
            with steps.within(ENGINE + "MmBackward0", layer), steps.within(f"aten::behind_{layer}"):
                for us in (150, 200):
                    steps.launch("mm", Phase.BACKWARD, GEMM, us)
            with steps.within(ENGINE + ACCUMULATES), steps.within(f"aten::adding_{layer}"):
                if layer < adds:
                    steps.launch("add_", Phase.GRADIENT_ACCUMULATION, us=10)
        if generates:
            with steps.within(ENGINE + ACCUMULATES):
                pass
        steps.launch("update", Phase.OPTIMIZER, us=10)
        steps.end_step()
    places: dict[str, dict] = {}
    for layer in range(5):
        critic = {"module": f"critic.{layer}"}
        places[f"layer_{layer}"] = at(4, "mm", **critic)
        places[f"behind_{layer}"] = at(4, "mm", Phase.BACKWARD, **critic)
        places[f"adding_{layer}"] = at(4, "add_", Phase.GRADIENT_ACCUMULATION, **critic)
    return steps.analysis(**places)


def test_weights_of_a_critic_need_no_gradients_in_the_step_of_its_generator():
    found = only(frozen_network.RULE, criticized())
    assert found.summary == "gradients of parameters that no optimizer updates"
    assert found.location.line == 4
    # Those of their inputs stay: 150 us of each layer
    assert found.est_saving_ns == pytest.approx(5 * 210 * US, rel=0.02)


def test_gradients_that_are_new_and_those_that_a_second_backward_adds_to_are_read():
    assert is_silent(frozen_network.RULE, criticized(adds=3))
    assert is_silent(frozen_network.RULE, criticized(generates=False))
