"""Ops, modules and kernels are matched by what they are, and left alone where that is not sure."""

from __future__ import annotations

from profiler_ext.comparison.matching import (
    Pairs,
    match_kernels,
    match_layers,
    match_modules,
    match_ops,
    op_name,
    unambiguous_matches,
    without_indices,
)
from profiler_ext.comparison.records import Match
from profiler_ext.records.vocabulary import LaunchKind

TRITON, EAGER, EXTERN = LaunchKind.TRITON, LaunchKind.EAGER, LaunchKind.EXTERN


def test_an_op_is_the_same_as_eager_work_spells_it():
    found = match_ops(
        ["aten.addmm.default", "aten.gelu.default", "aten::copy_"],
        ["aten::addmm", "aten.gelu.default", "aten::mul"],
    )
    assert found.match == {
        "aten.addmm.default": Match.RESPELLED,
        "aten.gelu.default": Match.SAME,
    }


def test_two_overloads_of_one_op_are_not_guessed():
    assert match_ops(["aten.mul.Tensor", "aten.mul.Scalar"], ["aten::mul"]).head_of == {}


def test_the_name_of_an_op_has_no_namespace_and_no_overload():
    named = ["aten.add.Tensor", "aten::add", "aten::add.out", "mylib::fuse", "custom"]
    assert [op_name(each) for each in named] == ["add", "add", "add", "fuse", "custom"]


def test_layers_of_another_name_are_matched_by_number_and_content():
    mlp, attention = frozenset({1, 2, 3}), frozenset({4, 5})
    base = {f"blocks.{n}.mlp": mlp for n in range(3)} | {"blocks.1.attention": attention}
    head = {f"layers.{n}.ff": mlp for n in range(3)} | {"layers.1.attention": attention}
    assert match_modules(base, head).head_of == {
        "blocks.0.mlp": "layers.0.ff",
        "blocks.1.mlp": "layers.1.ff",
        "blocks.2.mlp": "layers.2.ff",
        "blocks.1.attention": "layers.1.attention",
    }


def test_a_module_that_both_sides_have_is_matched_with_no_other():
    content = frozenset({1, 2})
    found = match_modules({"mlp": content}, {"mlp": frozenset({9}), "ff": content})
    assert (found.head_of, found.match) == ({"mlp": "mlp"}, {"mlp": Match.SAME})


def test_a_module_with_two_equal_candidates_is_not_guessed():
    content = frozenset({1, 2})
    assert match_modules({"old": content}, {"a": content, "b": content}).head_of == {}


def test_layers_together_follow_their_modules_where_all_go_one_way():
    modules = {f"blocks.{n}.mlp": f"layers.{n}.ff" for n in range(2)} | {"norm": "norm"}
    pairs = Pairs(modules, {})
    found = match_layers(pairs, modules.keys(), modules.values())
    assert found.match == {"norm": Match.SAME, "blocks.*.mlp": Match.RENAMED}
    split = Pairs({"blocks.0.mlp": "layers.0.ff", "blocks.1.mlp": "layers.1.mlp"}, {})
    both = ["layers.0.ff", "layers.1.mlp"]
    assert match_layers(split, ["blocks.0.mlp", "blocks.1.mlp"], both).head_of == {}
    assert [without_indices(path) for path in ("0", "a.12.b3.4", "", "x1.y")] == [
        "*",
        "a.*.b3.*",
        "",
        "x1.y",
    ]


def test_a_generated_kernel_is_matched_by_its_work_and_not_by_its_number():
    base = {("triton_add_0", TRITON): frozenset({1}), ("triton_add_1", TRITON): frozenset({2})}
    head = {("triton_add_0", TRITON): frozenset({2}), ("triton_add_1", TRITON): frozenset({1})}
    found = match_kernels(base, head)
    assert found.head_of == {
        ("triton_add_0", TRITON): ("triton_add_1", TRITON),
        ("triton_add_1", TRITON): ("triton_add_0", TRITON),
    }
    assert set(found.match.values()) == {Match.SAME_WORK}


def test_of_kernels_with_equal_work_the_one_that_kept_its_name_is_the_same():
    work = frozenset({1, 2})
    base = {("triton_a_0", TRITON): work, ("triton_b_1", TRITON): work}
    assert match_kernels(base, base).match == dict.fromkeys(base, Match.SAME)


def test_a_librarys_kernel_keeps_its_name_whatever_it_computes():
    base = {("extern_kernels.mm", EXTERN): frozenset({1})}
    head = {("extern_kernels.mm", EXTERN): frozenset({7})}
    assert match_kernels(base, head).match == {("extern_kernels.mm", EXTERN): Match.SAME}


def test_a_kernel_of_another_device_is_matched_by_its_work():
    base = {("sm80_xmma_gemm", EAGER): frozenset({1, 2, 3})}
    head = {("nvjet_sm90", EAGER): frozenset({1, 2, 3, 4})}
    assert match_kernels(base, head).match == {("sm80_xmma_gemm", EAGER): Match.SIMILAR_WORK}


def test_kernels_with_nothing_in_common_are_gone_and_new():
    base, head = {("a", TRITON): frozenset({1})}, {("a", TRITON): frozenset({2})}
    assert match_kernels(base, head).head_of == {}


def test_a_kernel_of_which_nothing_is_known_keeps_its_name():
    nothing = {("triton_a_0", TRITON): frozenset[int]()}
    assert match_kernels(nothing, nothing).match == {("triton_a_0", TRITON): Match.SAME}


def test_a_pair_must_be_each_others_best_by_a_margin():
    scores = {("a", "x"): 0.9, ("a", "y"): 0.85, ("b", "y"): 0.7, ("c", "z"): 0.5}
    assert unambiguous_matches(scores, least=0.4, margin=0.1) == {("c"): "z"}
    assert unambiguous_matches(scores, least=0.4, margin=0.01) == {"a": "x", "c": "z"}
    assert unambiguous_matches(scores, least=0.6, margin=0.1) == {}


def test_a_kernel_of_which_only_the_name_is_known_keeps_it_under_another_number():
    base = {("triton_poi_fused_gelu_view_9", TRITON): frozenset()}
    head = {("triton_poi_fused_gelu_view_10", TRITON): frozenset()}
    (pair,) = match_kernels(base, head).head_of.items()
    assert pair == (*base, *head)
    assert match_kernels(base, head).match == dict.fromkeys(base, Match.RENAMED)
    assert match_kernels(head, base).head_of == {pair[1]: pair[0]}


def test_of_two_kernels_with_one_name_but_for_the_number_none_is_guessed():
    base = {("triton_poi_fused_gelu_9", TRITON): frozenset()}
    head = {(f"triton_poi_fused_gelu_{n}", TRITON): frozenset() for n in (10, 11)}
    assert match_kernels(base, head).head_of == {}
    known = {("triton_poi_fused_gelu_10", TRITON): frozenset({1})}
    assert match_kernels(base, known).head_of == {}


def test_numbers_that_are_not_the_same_on_both_sides_tell_no_kernel():
    base = {(f"triton_poi_fused__to_copy_{n}", TRITON): frozenset() for n in (13, 14)}
    head = {(f"triton_poi_fused__to_copy_{n}", TRITON): frozenset() for n in (14, 15)}
    assert match_kernels(base, head).head_of == {}
    assert match_kernels(base, base).match == dict.fromkeys(base, Match.SAME)
