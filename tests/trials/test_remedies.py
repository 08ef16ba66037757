"""The remedies, and the recommendations that each is tried for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from profiler_ext.findings import RULES
from profiler_ext.memory import rules as memory_rules
from profiler_ext.trials import BY_NAME, REMEDIES, trying
from profiler_ext.trials.remedy import Remedy


def test_names_of_remedies_are_unique_and_their_rules_exist():
    assert len(BY_NAME) == len(REMEDIES)
    rules = {each.name for each in (*RULES, *memory_rules.RULES)}
    assert {rule for each in REMEDIES for rule in (*each.rules, *each.named_by)} <= rules


def test_an_option_is_proposed_where_the_finding_names_it():
    def names(rule, remedy):
        finding = SimpleNamespace(rule=rule, remedy=remedy)
        return [each.name for each in REMEDIES if trying._proposes(finding, each)]

    text = 'torch.compile(..., options={"max_autotune": True})'
    assert names("missed_fusion", text) == ["max_autotune"]
    assert names("missed_fusion", "compile one function around both calls") == []
    assert "max_autotune" in names("far_from_roofline", "")


def test_the_recommendations_that_no_remedy_is_tried_for_are_these():
    """A change of the source, of what is recorded, or of the machine."""
    proposed = {rule for each in REMEDIES for rule in (*each.rules, *each.named_by)}
    assert {each.name for each in RULES} - proposed == {
        *("allocating", "autotuning", "compiling", "debug_setting", "dense_embedding_gradients"),
        *("first_step", "float64", "graph_break", "growing_cache", "late_rank"),
        *("autograd_in_inference", "bias_before_norm", "indexing_gradient", "loss_scaling"),
        *("one_hot", "padded_batch", "repeated_heads", "strided_copy"),
        *("contended_sum", "promoted_dtype", "shared_input", "written_out"),
        *("cpu_work", "rebuilt_constant", "unfolded_norm"),
        *("discarded_work", "frozen_network", "full_sort", "gathered_rows", "looping_op"),
        *("native_convolution", "pointwise_convolution", "repeated_backward", "repeated_call"),
        *("exposed_copy", "product_with_zeros", "repeated_cast", "scattered_weights"),
        *("training_mode", "coalescing", "float32_power", "nested_pools", "padding_copy"),
        *("slow_fft", "small_batch", "split_batch", "unmerged_weight"),
        *("misaligned_matmul", "recomputed_prefix", "synchronisation", "uncached"),
        *("unlike_siblings", "unpaid_tuning"),
        *("broadcast_matmul", "few_blocks", "grouped_convolution", "norm_in_float32"),
        *("row_products", "slow_op", "moved_data", "large_intermediate"),
    }


def test_an_optimizer_that_steps_by_parameter_is_tried_fused_first():
    proposed = [each.name for each in REMEDIES if "per_parameter_optimizer" in each.rules]
    assert proposed == ["fused_optimizer", "foreach_optimizer", "compiled_optimizer"]


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda each: each.name)
def test_a_remedy_says_what_it_patches_and_what_a_script_may_lack(remedy: Remedy):
    is_tried = remedy.apply is not None
    assert (bool(remedy.patches), bool(remedy.lacks)) == (is_tried, is_tried)
    assert remedy.edit
    assert remedy.title
