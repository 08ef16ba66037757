"""Ops that move more than their result needs: each rule has a step with it, and one without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profiler_ext.findings.rules import (
    coalescing,
    float32_power,
    frozen_network,
    gathered_rows,
    layout_conversion,
    nested_pools,
    padding_copy,
    per_parameter_optimizer,
    pointwise_convolution,
    slow_fft,
    synchronisation,
)
from profiler_ext.records.analysis import Analysis
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
    made,
    only,
    placed,
)
from tests.handmade import Mark, interned

GEMM = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT"
CASTS = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>"
MIRRORS = "void at::native::_fft_conjugate_copy_kernel<c10::complex<float>>"
COMPLEX = "void at::native::vectorized_elementwise_kernel<2, BinaryFunctor<c10::complex<float>>>"
POOLS = "void at::native::(anonymous namespace)::max_pool_forward_nhwc<c10::BFloat16, int>"
POOLS_BACK = "void at::native::(anonymous namespace)::max_pool_backward_nhwc<c10::BFloat16>"
LOOKUP = "void at::native::vectorized_gather_kernel<16, long>"


def spectra(code: str, transform: str = MIRRORS, op: str = "fft_ifft") -> Analysis:
    return made(
        forward("_fft_r2c", transform),
        forward("mul", COMPLEX),
        backward("mul_back", COMPLEX),
        forward("_fft_c2c", "void vector_fft<8192u, EPT<32u>>"),
        _fft_r2c=at(3, "fft_fft", code="a = torch.fft.fft(x)"),
        mul=at(4, code="a = a * b"),
        mul_back=at(4, "mul", Phase.BACKWARD, code="a = a * b"),
        _fft_c2c=at(5, op, code=code),
    )


def test_of_a_spectrum_of_real_numbers_half_is_enough():
    found = only(slow_fft.RULE, spectra("return torch.fft.ifft(a).real"))
    assert (found.est_saving_ns, found.location.line) == ((300 + 450) * US, 3)
    assert found.remedy.startswith("torch.fft.rfft")


@pytest.mark.parametrize("code", ["return torch.fft.ifft(a)", "y = ifft(a); y.real, y.imag"])
def test_where_the_result_is_complex_only_the_second_half_of_a_spectrum_goes(code: str):
    assert only(slow_fft.RULE, spectra(code)).est_saving_ns == 300 * US


def test_the_real_part_of_a_spectrum_itself_has_two_halves():
    analysis = spectra("return torch.fft.fft(a, dim=1).real", op="fft_fft")
    assert only(slow_fft.RULE, analysis).est_saving_ns == 300 * US


def test_transforms_of_complex_numbers_and_rfft_are_none():
    plain = "void regular_fft_r2c<8192u, EPT<16u>>"
    assert is_silent(slow_fft.RULE, spectra("return torch.fft.irfft(a)", plain))


def multiplied(*, coalesces: bool, code: str = "y = torch.sparse.mm(a, x)") -> Analysis:
    """Three steps of a product with a sparse matrix, whose entries it sorts or not."""
    script = Script()
    for _ in range(3):
        begin_ns = script.now_ns
        for _ in range(4):
            script.launch("DeviceMergeSortMergeKernel", 100 * US, op="aten::sort")
        if coalesces:
            sorts = Mark("aten::_coalesce", "cpu_op", CPU, begin_ns, script.now_ns - begin_ns)
            script.marks.append(sorts)
        script.launch("convert_CooToCsr_kernel", 50 * US, op="aten::addmm")
        script.launch("csrmm_alg1_kernel", 100 * US, op="aten::addmm")
        script.wait()
        script.end_step()
    own = at(7, "_sparse_mm", code=code)
    return placed(script.analysis(), sort=own, _coalesce=own, addmm=own)


def test_a_product_that_sorts_its_sparse_operand_costs_the_sort():
    found = only(coalescing.RULE, multiplied(coalesces=True))
    assert (found.location.line, found.evidence[0].value, found.evidence[2].value) == (7, 5, 1)
    # And the CPU's way to the launches, while the device has nothing else to run
    assert found.est_saving_ns == pytest.approx(450 * US, rel=0.01)


def test_sorts_that_a_line_asks_for_are_none():
    assert is_silent(coalescing.RULE, multiplied(coalesces=False))
    assert is_silent(coalescing.RULE, multiplied(coalesces=True, code="a = a.coalesce()"))


def padded(code: str = "x = F.pad(", reader: str = "conv2d") -> Analysis:
    return made(
        forward("fill_"),
        forward("copy_"),
        forward("reader", GEMM),
        fill_=at(3, "pad", code=code),
        copy_=at(3, "pad", code=code),
        reader=at(6, reader),
    )


def test_a_copy_that_pads_for_a_convolution_is_needless():
    found = only(padding_copy.RULE, padded())
    assert (found.est_saving_ns, found.location.line) == (600 * US, 3)
    assert found.remedy.startswith("the convolution's padding=")
    timm = "x = F.pad(x, (pad_w // 2, pad_w - pad_w // 2), value=value)"
    for code in ("F.pad(x, (1, 1, 2, 2))", timm):
        assert only(padding_copy.RULE, padded(code)).est_saving_ns == 600 * US


@pytest.mark.parametrize(
    ("code", "reader"),
    [
        ("x = F.pad(x, (0, 1, 0, 1))", "conv2d"),
        ("x = F.pad(x.mT, (self.width - 1, 0))", "conv1d"),
        ("x = F.pad(x, (1, 1), value=-1)", "conv1d"),
        ("x = F.pad(", "max_pool2d"),
    ],
)
def test_uneven_padding_and_what_no_convolution_reads_are_none(code: str, reader: str):
    assert is_silent(padding_copy.RULE, padded(code, reader))


def pooled(times_us: tuple[int, ...], between: bool = False) -> Analysis:
    """Three steps of max pools of as many results, and their backward."""
    script = Script()
    phases: list[str] = []
    for _ in range(3):
        for time_us in times_us:
            op = "aten::max_pool2d_with_indices"
            script.launch(POOLS, time_us * US, op=op, grid=[64, 1, 5])
            phases.append("forward")
            if between:
                script.launch(ELEMENTWISE, 10 * US, op="aten::relu")
                phases.append("forward")
        for time_us in times_us:
            op = "aten::max_pool2d_with_indices_backward"
            script.launch(POOLS_BACK, 2 * time_us * US, op=op, grid=[64, 1, 5])
            phases.append("backward")
        script.wait()
        script.end_step()
    own = at(8, "max_pool2d", module="pools")
    back = at(8, "max_pool2d_with_indices_backward", Phase.BACKWARD, module="pools")
    analysis = placed(
        script.analysis(),
        max_pool2d_with_indices=own,
        max_pool2d_with_indices_backward=back,
        relu=at(9),
    )
    return replace(analysis, launches=replace(analysis.launches, phase=interned(phases)))


def test_pools_of_several_sizes_side_by_side_cost_what_the_smallest_takes_less():
    found = only(nested_pools.RULE, pooled((100, 260, 470)))
    assert found.est_saving_ns == 3 * (160 + 370) * US
    assert (found.location.line, found.evidence[2].value) == (8, 4.7)


def test_pools_in_a_row_and_pools_of_other_tensors_are_none():
    assert is_silent(nested_pools.RULE, pooled((100, 101, 102)))
    assert is_silent(nested_pools.RULE, pooled((100, 260, 470), between=True))


def squared(kernel: str, *, casts_back: bool = True) -> Analysis:
    code = "h.pow(2)"
    return made(
        forward("copy_", kernel),
        forward("pow"),
        forward("to", CASTS if casts_back else ELEMENTWISE),
        forward("mm", GEMM),
        copy_=at(3, "pow", code=code),
        pow=at(3, "pow", code=code),
        to=at(4, "linear"),
        mm=at(4, "linear"),
    )


def test_a_power_that_autocast_casts_for_could_be_a_product():
    found = only(float32_power.RULE, squared(CASTS))
    assert (found.est_saving_ns, found.location.line) == (int(0.64 * 900 * US), 3)
    assert found.remedy.startswith("x * x")


def test_powers_that_nothing_is_cast_for_are_none():
    assert is_silent(float32_power.RULE, squared(ELEMENTWISE))
    assert is_silent(float32_power.RULE, squared(CASTS, casts_back=False))  # a norm's


def edges(joins: str = "cat", adds: str = "index_add_") -> Analysis:
    return made(
        forward("first", LOOKUP),
        forward("second", LOOKUP),
        forward(joins),
        forward("addmm", GEMM),
        forward(adds),
        backward("mm", GEMM),
        **{joins: at(5, joins, module="layer"), adds: at(8, adds, module="layer")},
        first=at(3, "index_select", module="layer"),
        second=at(4, "index_select", module="layer"),
        addmm=at(6, "linear", module="layer.message"),
        mm=at(6, "mm", Phase.BACKWARD, module="layer.message"),
    )


def test_a_product_of_joined_ends_of_edges_is_one_of_the_nodes():
    found = only(gathered_rows.RULE, edges())
    assert (found.est_saving_ns, found.location.line) == (600 * US, 6)
    assert found.evidence[2].value == 5
    assert found.remedy.startswith("multiply the nodes")


def test_rows_that_are_not_joined_or_not_added_up_are_none():
    assert is_silent(gathered_rows.RULE, edges(joins="mul"))
    assert is_silent(gathered_rows.RULE, edges(adds="relu"))


def copied(op: str, kernel: str = ELEMENTWISE) -> Analysis:
    own = at(3, op, module="conv")
    launches = (forward("copy_", kernel), forward("cudnn_convolution", GEMM))
    return made(*launches, copy_=own, cudnn_convolution=own)


def test_a_convolution_that_copies_its_input_gets_it_in_another_layout():
    found = only(layout_conversion.RULE, copied("conv2d"))
    assert (found.est_saving_ns, found.location.line) == (300 * US, 3)
    assert found.remedy.startswith("keep channels_last")
    assert is_silent(pointwise_convolution.RULE, copied("conv2d"))


def test_casts_of_a_convolution_and_copies_of_one_dimension_are_no_layout():
    assert is_silent(layout_conversion.RULE, copied("conv2d", CASTS))
    assert is_silent(layout_conversion.RULE, copied("conv1d"))


def shared(*lines: int) -> tuple[Frame, ...]:
    return tuple(Frame("/train.py", line, "step", f"line {line}") for line in lines)


def test_a_network_that_is_not_trained_is_named_where_the_trained_one_is_not_called():
    script = Script()
    for _ in range(3):
        for _ in range(5):
            script.launch(GEMM, 100 * US, op="aten::mm")
        script.launch("softmax", 40 * US, op="aten::softmax")  # of the call, in no module
        for op in ("addmm", "mm_backward"):
            script.launch(GEMM, 300 * US, op=f"aten::{op}")
        script.wait()
        script.end_step()
    analysis = placed(
        script.analysis(),
        softmax=at(5, module=None, stack=shared(9, 40)),
        mm=at(3, module="reference.0", stack=shared(9, 40)),
        addmm=at(4, module="policy.0", stack=shared(10, 40)),
        mm_backward=at(4, "mm", Phase.BACKWARD, module="policy.0", stack=shared(10, 40)),
    )
    phases = interned((["forward"] * 7 + ["backward"]) * 3)
    analysis = replace(analysis, launches=replace(analysis.launches, phase=phases))
    found = only(frozen_network.RULE, analysis)
    assert (found.location.line, found.est_saving_ns) == (9, 540 * US)


def formatted(reads: int) -> Analysis:
    """Three steps of an optimizer that prints a tensor: a read, some Python, a read."""
    script, words = Script(), {"category": "gpu_memcpy", "cost_ns": 10 * US}
    for _ in range(3):
        script.launch(GEMM, 500 * US, op="aten::mm")
        for _ in range(reads):
            script.now_ns += 60 * US
            script.launch("Memcpy DtoH (Device -> Pinned)", US, op=READ, **words)
            script.wait()
        script.end_step()
    line: dict[str, Any] = {"file": "/optimizer.py", "line": 5, "phase": Phase.OPTIMIZER}
    made = placed(script.analysis(), _local_scalar_dense=line)
    idle = tuple(replace(each, **line) for each in made.idle.places)
    phases = interned((["forward"] + ["optimizer"] * reads) * 3)
    return replace(
        made,
        idle=replace(made.idle, places=idle),
        launches=replace(made.launches, phase=phases),
    )


READ = "aten::_local_scalar_dense"


def test_a_tensor_that_an_optimizer_prints_costs_the_python_between_its_values():
    found = only(synchronisation.RULE, formatted(40))
    # Of each round 60 us of Python, 10 us of the op and the wait behind it; the first has a
    # product before it, whose way the Python is
    assert found.est_saving_ns == pytest.approx(39 * 73 * US / 1.45, rel=0.1)
    assert is_silent(per_parameter_optimizer.RULE, formatted(40))
