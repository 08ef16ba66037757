"""Names are cut so that what tells them apart stays; bars and columns keep within their width."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from profiler_ext.exporters.terminal.columns import Name, Number, bar_text, fitting, name_widths
from profiler_ext.exporters.views.formatting import (
    kernel_text,
    middle,
    path_end,
    short_kernel,
    start,
)

TRITON = "triton_poi_fused__to_copy_add_mul_view_5"
SGEMM = "cutlass_80_simt_sgemm_64x64_8x5_nn_align1"


@given(st.text(), st.integers(1, 60), st.sampled_from([middle, path_end, start]))
def test_what_is_cut_has_the_width_and_what_fits_is_whole(text, width, cut):
    shown = cut(text, width)
    assert len(shown) == min(len(text), width)
    assert shown == text or "\N{HORIZONTAL ELLIPSIS}" in shown


def test_each_kind_of_name_keeps_what_tells_it_apart():
    assert middle(TRITON, 17) == "triton_p…l_view_5"
    assert path_end("/home/ann/gpt/model.py:12", 14) == "…t/model.py:12"
    assert path_end("(no source line)", 12) == "(no source …"
    assert start("return self.down(x)", 12) == "return self…"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (f"void cutlass::Kernel2<{SGEMM}>({SGEMM}::Params)", SGEMM),
        ("void cutlass::device_kernel<flash::enable_sm90>(int)", "flash"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
            "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>)",
            "vectorized_elementwise_kernel<4, FillFunctor<float>, std::array<char*, 1ul> >",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<int>(int)",
            "multi_tensor_apply_kernel<int>",
        ),
        ("fmha_cutlassB_f32_64x64_sm80(Params)", "fmha_cutlassB_f32_64x64_sm80"),
        (
            "sm80_xmma_gemm_f32f32_tn_n_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
            "sm80_xmma_gemm_f32f32_tn_n_ffma_aligna4_alignc4",
        ),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("nvjet_tst_64x8_64x16_1x4_h_bz_TNT", "nvjet_tst_64x8_64x16_1x4_h_bz_TNT"),
        ("aten::mm", "aten::mm"),
        ("void (", "void ("),
        ("", ""),
    ],
)
def test_a_kernels_name_loses_what_is_of_every_kernel(name, short):
    assert short_kernel(name) == short


@pytest.mark.parametrize(
    ("kernel", "own", "shown"),
    [
        ("extern_kernels.mm", "nvjet_1", "mm: nvjet_1"),
        ("torch.ops.aten._flash.default", "void flash<1>(int)", "_flash.default: flash<1>"),
        (TRITON, f"graph_0_{TRITON}", TRITON),
        ("cpp_fused_0", "cpp_fused_0", "cpp_fused_0"),
        ("void a::b(int)", None, "a::b"),
    ],
)
def test_a_librarys_kernel_is_reported_with_the_call(kernel, own, shown):
    assert kernel_text({"kernel": kernel, "name": own}) == shown


@given(
    st.dictionaries(st.sampled_from(["red", "blue", "green"]), st.integers(0, 10**6), max_size=3),
    st.integers(1, 40),
    st.floats(0.1, 10),
)
def test_a_bar_is_as_long_as_its_part_of_the_whole(parts, width, factor):
    whole = max(sum(parts.values()) * factor, 1)
    bar = bar_text(parts, whole, width, Console(file=io.StringIO()))
    expected = min(width * sum(parts.values()) / whole, width)
    assert expected - 1 / 8 - 1e-6 <= _length(bar.plain) <= expected + 1e-6


def _length(bar):
    return sum(1 if letter == "█" else " ▏▎▍▌▋▊▉".index(letter) / 8 for letter in bar)


def column(heading, width, order):
    return Number(heading, width, lambda row: None, order)


def test_numbers_that_matter_most_stay_where_there_is_little_room():
    name = Name("kernel", ["k" * 60], middle, 20)
    numbers = [column(*each) for each in (("a", 7, 0), ("b", 7, 4), ("c", 9, 1), ("d", 7, 3))]
    found = {
        width: "".join(each.heading for each in fitting(numbers, [name], width))
        for width in (20, 39, 40, 49, 76, 86)
    }
    assert found == {20: "a", 39: "ad", 40: "ac", 49: "acd", 76: "acd", 86: "abcd"}


def test_a_second_name_is_left_out_where_little_of_it_would_be_seen():
    names = [Name("line", ["model.py:12"], middle, 8), Name("code", ["h = self.up(x)"], start, 8)]
    assert [name_widths(names, room) for room in (40, 24, 18, 5)] == [
        [11, 14],
        [8, 14],
        [8, 8],
        [5],
    ]
