"""Kernels with the work of some lines taken out: their text, and what a compiler leaves of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pytest

from profiler_ext.inside.kernel_text import Kernel, NotTakenOutError
from profiler_ext.inside.knock_out import (
    NOTHING_TO_TAKE_OUT,
    passed_loads,
    text_without,
    whole_text,
)
from tests.inside.generated import GATHER, POINTWISE, REDUCTION, WELFORD, compiled, generated

CONFIG = {"XBLOCK": 256, "num_warps": 4, "num_stages": 1}
OF_ROWS = {"XBLOCK": 1, "R0_BLOCK": 1024, "num_warps": 4, "num_stages": 1}


def line_of(text: str, begin: str) -> int:
    """Return the number of the only line that begins so."""
    (number,) = (
        at for at, line in enumerate(text.split("\n"), start=1) if line.strip().startswith(begin)
    )
    return number


def body_of(text: str) -> list[str]:
    """Return the lines of the kernel's own function."""
    _, _, body = text.partition("def triton_")
    return [line.strip() for line in body.split("\n")[1:] if line.strip()]


def without(
    text: str,
    *begins: str,
    config: Mapping[str, object] = CONFIG,
    ranges: Mapping[str, tuple[int, int]] | None = None,
) -> str:
    lines = {line_of(text, begin) for begin in begins}
    return text_without(Kernel(text, "triton_kernel"), lines, config, "_out", ranges)


def changed(text: str, *begins: str) -> list[str]:
    """Return the lines of a variant that its kernel does not have."""
    known = body_of(text)
    return [line for line in body_of(without(text, *begins)) if line not in known]


def test_an_op_passes_its_operand_on() -> None:
    assert changed(POINTWISE, "tmp3 = ") == [
        "knocked_out_10_ = libdevice.exp(tmp2)".replace("10", str(line_of(POINTWISE, "tmp3 ="))),
        f"tmp3 = _knock_out_pass(tmp2, knocked_out_{line_of(POINTWISE, 'tmp3 =')}_)",
    ]


def test_a_load_is_masked_out_at_run_time() -> None:
    (added,) = changed(POINTWISE, "tmp1 = ")
    assert added == "tmp1 = tl.load(in_ptr1 + x0, xmask & (knock_out_zero != 0), other=1)"


def test_a_store_is_masked_out_at_run_time() -> None:
    (added,) = changed(POINTWISE, "tl.store")
    assert added == "tl.store(out_ptr0 + x0, tmp5, xmask & (knock_out_zero != 0))".replace(
        "xmask &", "(xmask) &"
    )


def test_a_value_that_only_a_removed_line_reads_is_kept() -> None:
    (kept, *_) = changed(POINTWISE, "tmp5 = ")
    assert kept == "_knock_out_keep(in_ptr0, tmp4, knock_out_zero)"


GELU = generated(
    "tmp0 = tl.load(in_ptr0 + (x0), xmask)",
    "tmp1 = tl.load(in_ptr1 + (x0), xmask)",
    "tmp2 = tmp0 * tmp1",
    "tmp3 = tmp2 * 0.5",
    "tmp4 = libdevice.erf(tmp2)",
    "tmp5 = tmp3 * tmp4",
    "tl.store(out_ptr0 + (x0), tmp5, xmask)",
)


GELU_LEFT = whole_text(
    Kernel(
        "\n".join(each for each in GELU.split("\n") if not re.match(r" +tmp[345] =", each)).replace(
            ", tmp5", ", tmp2"
        ),
        "triton_kernel",
    ),
    CONFIG,
    "_left",
)


def test_what_removed_lines_make_of_a_value_that_stays_is_not_kept() -> None:
    text = without(GELU, "tmp3 = ", "tmp4 = ", "tmp5 = ")
    assert "_knock_out_keep(in_ptr0" not in text
    left, whole = compiled(text, CONFIG), compiled(GELU_LEFT, CONFIG)
    assert [count(left, word) for word in ("st.global", "setp")] == [1, count(whole, "setp")]


def test_what_others_compute_is_kept_in_the_place_of_what_removed_lines_make_of_it() -> None:
    text = POINTWISE.replace("tmp3 + tmp4", "tmp3 + tmp6").replace(
        "    tmp5 =", "    tmp6 = libdevice.sqrt(tmp4)\n    tmp5 ="
    )
    kept = [line for line in changed(text, "tmp6 = ", "tmp5 = ") if "_knock_out_keep" in line]
    assert kept == ["_knock_out_keep(in_ptr0, tmp4, knock_out_zero)"]


def test_an_op_whose_operand_others_read_too_stays_distinct() -> None:
    text = generated(
        "tmp0 = tl.load(in_ptr0 + (x0), xmask)",
        "tmp1 = libdevice.exp(tmp0)",
        "tmp2 = tmp0 - tmp1",
        "tl.store(out_ptr0 + (x0), tmp2, xmask)",
    )
    assert "_knock_out_distinct(tmp0," in changed(text, "tmp1 = ")[-1]


def test_two_ops_of_one_kind_are_not_made_one() -> None:
    text = generated(
        "tmp0 = tl.load(in_ptr0 + (x0), xmask)",
        "tmp1 = libdevice.exp(tmp0)",
        "tmp2 = libdevice.erf(tmp0)",
        "tmp3 = libdevice.erf(tmp1)",
        "tmp4 = tmp2 + tmp3",
        "tl.store(out_ptr0 + (x0), tmp4, xmask)",
    )
    assert "_knock_out_distinct(tmp0," in changed(text, "tmp1 = ")[-1]


def loads_apart(text: str, *begins: str) -> set[int]:
    """Return which of the lines that begin so load what their ops pass on."""
    lines = {line_of(text, begin) for begin in begins}
    return {*passed_loads(Kernel(text, "triton_kernel"), lines)}


def test_of_two_loaded_operands_the_first_is_passed_on_and_its_load_is_apart() -> None:
    own = ("tmp0 = ", "tmp1 = ", "tmp2 = ")
    assert loads_apart(POINTWISE, *own) == {line_of(POINTWISE, "tmp0 = ")}
    assert "_knock_out_pass(tmp0, " in changed(POINTWISE, *own[1:])[-1]


def test_an_operand_that_other_lines_make_is_passed_on_before_one_that_is_loaded() -> None:
    text = generated(
        "tmp0 = tl.load(in_ptr0 + (x0), xmask)",
        "tmp1 = tl.load(in_ptr1 + (x0), xmask)",
        "tmp2 = libdevice.exp(tmp0)",
        "tmp3 = tmp1 + tmp2",
        "tl.store(out_ptr0 + (x0), tmp3, xmask)",
    )
    assert loads_apart(text, "tmp1 = ", "tmp3 = ") == set()
    assert "_knock_out_pass(tmp2, " in changed(text, "tmp1 = ", "tmp3 = ")[-1]


def test_a_condition_is_not_what_a_choice_passes_on() -> None:
    text = generated(
        "tmp0 = tl.load(in_ptr0 + (x0), xmask).to(tl.int1)",
        "tmp1 = tl.load(in_ptr1 + (x0), xmask)",
        "tmp2 = tl.where(tmp0, tmp1, 0.5)",
        "tl.store(out_ptr0 + (x0), tmp2, xmask)",
        pointers={"in_ptr0": "*i1", "in_ptr1": "*fp32", "out_ptr0": "*fp32"},
    )
    assert loads_apart(text, "tmp0 = ", "tmp1 = ", "tmp2 = ") == {line_of(text, "tmp1 = ")}


def test_a_load_is_apart_where_nothing_but_a_type_is_left_without_it() -> None:
    text = generated(
        "tmp0 = tl.load(in_ptr0 + (x0), xmask)",
        "tmp1 = tmp0.to(tl.float16)",
        "tl.store(out_ptr0 + (x0), tmp1, xmask)",
    )
    own = ("tmp0 = ", "tmp1 = ")
    assert loads_apart(text, *own) == {line_of(text, begin) for begin in own}
    assert loads_apart(text, "tmp0 = ") == {line_of(text, "tmp0 = ")}
    assert loads_apart(text, "tmp1 = ") == set()


def test_values_that_are_read_twice_each_are_followed_once() -> None:
    lines = ["tmp0 = tl.load(in_ptr0 + (x0), xmask)"]
    for at in range(0, 60, 2):  # there are 2 ** 30 ways to the load
        lines.append(f"tmp{at + 1} = libdevice.exp(tmp{at})")
        lines.append(f"tmp{at + 2} = tmp{at} * tmp{at + 1}")
    text = generated(*lines, "tl.store(out_ptr0 + (x0), tmp60, xmask)")
    assert loads_apart(text, *(f"tmp{at} = " for at in range(61))) == {line_of(text, "tmp0 = ")}


def test_what_a_reduction_or_a_gather_reads_is_its_own() -> None:
    own = ("tmp0 = ", "tmp1 = ", "tmp2 = ", "tmp4 = ", "_tmp3 = tl.where", "tmp3 = ")
    assert loads_apart(REDUCTION, *own) == set()
    assert loads_apart(REDUCTION, *own[:2]) == {line_of(REDUCTION, "tmp0 = ")}
    assert loads_apart(GATHER, *(f"tmp{number} = " for number in range(6))) == set()
    assert loads_apart(GATHER, "tmp0 = ", "tmp5 = ") == set()


def test_what_computes_an_address_stays() -> None:
    with pytest.raises(NotTakenOutError, match=re.escape(NOTHING_TO_TAKE_OUT)):
        without(GATHER, "tmp2 = ")


def test_an_index_is_replaced_by_others_within_those_that_it_had() -> None:
    with pytest.raises(NotTakenOutError):
        without(GATHER, "tmp0 = ")  # nothing is known of its values
    text = without(GATHER, "tmp0 = ", ranges={"in_ptr0": (3, 499)})
    assert "other=_knock_out_index(x1 + knock_out_zero, 3, 497))" in text


def test_an_index_of_which_no_access_stays_costs_no_arithmetic() -> None:
    text = without(GATHER, "tmp0 = ", "tmp5 = ", ranges={"in_ptr0": (3, 499)})
    assert "tmp0 = tl.load(in_ptr0 + x1, xmask & (knock_out_zero != 0), other=3)" in text
    assert "_knock_out_index(" not in "".join(body_of(text))
    # As a mask of a store it would have to be right
    masked = GATHER.replace("tmp5, xmask)", "tmp5, xmask & (tmp0 < 9))")
    text = without(masked, "tmp0 = ", "tmp5 = ", ranges={"in_ptr0": (3, 499)})
    assert "other=_knock_out_index(x1 + knock_out_zero, 3, 497))" in text


def test_a_partial_sum_stays_and_the_reduction_at_the_end_goes() -> None:
    with pytest.raises(NotTakenOutError):
        without(REDUCTION, "tmp4 = ", config=OF_ROWS)
    text = without(REDUCTION, "tmp3 = tl.sum", config=OF_ROWS)
    assert "tmp3 = _knock_out_reduced(xindex + knock_out_zero, " in text
    assert "_knock_out_keep(in_ptr0, _tmp3, knock_out_zero)" in text
    whole = without(REDUCTION, "tmp4 = ", "_tmp3 = tl.where", "tmp3 = tl.sum", config=OF_ROWS)
    assert "_knock_out_keep(in_ptr0, _tmp3, knock_out_zero)" in whole


def test_a_kernel_that_inductor_did_not_write_is_refused() -> None:
    text = "@triton.jit\ndef triton_kernel(x):\n    tl.store(x, 1)\n"
    with pytest.raises(NotTakenOutError, match="no kernel that Inductor generated"):
        Kernel(text, "triton_kernel")
    with pytest.raises(NotTakenOutError, match="has no function other"):
        Kernel(POINTWISE, "other")
    with pytest.raises(NotTakenOutError, match="its text is no Python"):
        Kernel("def (", "other")


def test_the_added_argument_stands_after_those_that_are_given() -> None:
    text = whole_text(Kernel(POINTWISE, "triton_kernel"), CONFIG, "_whole")
    assert "def triton_kernel_whole(in_ptr0, in_ptr1, out_ptr0, xnumel, knock_out_zero, " in text
    assert "'xnumel': 'i32', 'knock_out_zero': 'i32', 'XBLOCK': 'constexpr'" in text
    assert "@triton_heuristics.fixed_config({'XBLOCK': 256, 'num_warps': 4" in text


@pytest.fixture(scope="module")
def whole() -> Iterator[str]:
    yield compiled(whole_text(Kernel(POINTWISE, "triton_kernel"), CONFIG, "_whole"), CONFIG)


def count(ptx: str, word: str) -> int:
    return sum(word in line for line in ptx.split("\n"))


def counts(ptx: str) -> tuple[int, int, int]:
    """Return the loads that may run, the exponentials and the stores."""
    return count(ptx, "ld.global"), count(ptx, "ex2.approx"), count(ptx, "st.global")


def test_a_compiler_keeps_all_but_what_the_load_reads(whole: str) -> None:
    assert counts(whole) == (2, 2, 1)
    ptx = compiled(without(POINTWISE, "tmp1 = "), CONFIG)
    assert counts(ptx) == (2, 2, 1)
    predicates = [
        re.findall(r"@(%p\d+) ld.global", line) for line in ptx.split("\n") if "ld.global" in line
    ]
    assert predicates[0] != predicates[1]


def test_a_compiler_loads_what_an_op_passes_on_and_not_what_the_lines_alone_read(
    whole: str,
) -> None:
    ptx = compiled(without(POINTWISE, "tmp1 = ", "tmp2 = "), CONFIG)
    assert counts(ptx) == (1, 2, 1)
    (left,) = (line for line in ptx.split("\n") if "ld.global" in line)
    known, _ = (line for line in whole.split("\n") if "ld.global" in line)
    assert re.findall(r"@%p\d+", left) == re.findall(r"@%p\d+", known)


def test_a_compiler_removes_the_op_and_nothing_else(whole: str) -> None:
    assert counts(compiled(without(POINTWISE, "tmp3 = "), CONFIG)) == (2, 0, 1)


def test_a_compiler_keeps_what_only_removed_lines_read() -> None:
    loads, exponentials, _ = counts(compiled(without(POINTWISE, "tmp5 = "), CONFIG))
    assert (loads, exponentials) == (2, 2)


@pytest.mark.parametrize(
    ("begin", "gone", "kept"),
    [("tmp2_mean_next", "div.full", "shfl"), ("tmp3, tmp4", "shfl", "ld.global")],
)
def test_a_welford_reduction_compiles_without_each_part(begin: str, gone: str, kept: str) -> None:
    whole = compiled(whole_text(Kernel(WELFORD, "triton_kernel"), OF_ROWS, "_whole"), OF_ROWS)
    ptx = compiled(without(WELFORD, begin, config=OF_ROWS), OF_ROWS)
    assert count(ptx, gone) < count(whole, gone)
    assert count(ptx, kept) == count(whole, kept)
