"""Generation: repeated tokens, caches that grow by copies, few tokens for each read of weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.rules import (
    growing_cache,
    launch_bound,
    recomputed_prefix,
    small_batch,
)
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.lineage import Frame
from profiler_ext.records.recording import StepCall, StepCalls
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import MS, US, Script, is_silent, only, placed
from tests.handmade import interned

_OPS = ("aten::native_layer_norm", "aten::add", "aten::gelu", "aten::_softmax")
_CALLER = Frame("/generate.py", 9, "generate")
_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, float>"
_CAT = "void at::native::CatArrayBatchedCopy<float>"


def generation(tokens: tuple[int, ...], cpu_ns: int = 10 * US, ops=_OPS) -> Analysis:
    """Two steps with a call of a model for each number of tokens, a block for each token."""
    script = Script()
    for _ in range(2):
        for count in tokens:
            for factor, op in enumerate(ops, 1):
                grid = [factor * count, 1, 1]
                script.launch(_ELEMENTWISE, MS, op=op, cost_ns=cpu_ns, grid=grid)
        script.wait()
        script.end_step()
    lines = {
        op.partition("::")[2]: {
            "file": "/model.py",
            "line": line,
            "stack": (_CALLER, Frame("/model.py", line, "forward")),
        }
        for line, op in enumerate(ops, 1)
    }
    return placed(script.analysis(), **lines)


def test_calls_with_as_many_tokens_more_each_time_repeat_those_before():
    found = only(recomputed_prefix.RULE, generation((64, 65, 66)))
    assert found.est_saving_ns == 8 * MS  # all but the first call
    assert (found.location.file, found.location.line) == ("/generate.py", 9)
    assert [each.value for each in found.evidence[:2]] == [2, 66]


def test_no_more_is_saved_than_the_step_is_longer_than_its_cpu():
    cpu_ns = 12 * 900 * US
    found = only(recomputed_prefix.RULE, generation((64, 65, 66), cpu_ns=900 * US))
    assert found.est_saving_ns < 8 * MS
    assert found.evidence[-1].value == pytest.approx(cpu_ns / 1.45, rel=0.05)


@pytest.mark.parametrize(
    "tokens", [(64, 64, 64), (64, 65), (64, 65, 67), (8, 16, 24), (66, 65, 64)]
)
def test_other_sizes_are_no_prefix(tokens: tuple[int, ...]):
    assert is_silent(recomputed_prefix.RULE, generation(tokens))


def test_a_model_without_attention_has_no_cache():
    assert is_silent(recomputed_prefix.RULE, generation((64, 65, 66), ops=_OPS[:3]))


def test_training_is_no_generation():
    analysis = generation((64, 65, 66))
    assert is_silent(recomputed_prefix.RULE, _in_phase(analysis, Phase.BACKWARD))


def appended(cat_ns: int, count: int = 2, code: str = "keys = torch.cat((keys, k), 2)") -> Analysis:
    script = Script()
    for _ in range(3):
        for _ in range(count):
            script.launch(_CAT, cat_ns, op="aten::cat")
            script.launch(_ELEMENTWISE, 20 * US, op="aten::add")
            script.launch(_ELEMENTWISE, 20 * US, op="aten::mul")
        script.wait()
        script.end_step()
    return placed(script.analysis(), cat={"file": "/model.py", "line": 7, "code": code})


def test_a_cat_far_larger_than_the_values_of_a_step_copies_a_cache():
    found = only(growing_cache.RULE, appended(400 * US))
    assert found.est_saving_ns == 800 * US
    assert (found.location.file, found.location.line) == ("/model.py", 7)


def test_a_cat_as_large_as_other_values_or_once_a_step_is_none():
    assert is_silent(growing_cache.RULE, appended(100 * US))
    assert is_silent(growing_cache.RULE, appended(400 * US, count=1))


@pytest.mark.parametrize(
    ("code", "grows"),
    [
        ("k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)", True),
        ("self.keys = torch.cat([self.keys, k], dim=-2)", True),
        ("x = F.relu(self.into(torch.cat((waves.sin(), waves.cos()), -1)))", False),
        ("x = self.into(torch.cat((x, y), -1))", False),
        ("x = torch.cat((x.sin(), y), -1)", False),
    ],
)
def test_a_cat_that_joins_nothing_to_what_it_assigns_copies_no_cache(code: str, grows: bool):
    assert is_silent(growing_cache.RULE, appended(400 * US, code=code)) != grows


def test_a_cat_in_training_is_none():
    assert is_silent(growing_cache.RULE, _in_phase(appended(400 * US), Phase.BACKWARD))


def _in_phase(analysis: Analysis, phase: Phase) -> Analysis:
    phases = interned([phase.value] * len(analysis.launches))
    return replace(analysis, launches=replace(analysis.launches, phase=phases))


def with_tokens(analysis: Analysis, *tokens: tuple[int, int], before: int = 0) -> Analysis:
    """Return an analysis whose steps had one call each, of so many sequences and tokens of each."""
    recording = analysis.recording
    calls = tuple(
        StepCalls(None if at < before else at - before, (StepCall("the module `M`", *each),))
        for at, each in enumerate(tokens)
    )
    settings = replace(recording.settings, step_calls=calls)
    return replace(analysis, recording=replace(recording, settings=settings))


def tokens_of(kernel_ns: int, **words: object) -> Script:
    """Two steps of a few launches, at whose ends the CPU waits."""
    script = Script()
    for _ in range(2):
        for _ in range(30):
            script.launch("extern_kernels.mm", kernel_ns, op="aten::mm", **words)
        script.wait()
        script.end_step()
    return script


def test_steps_of_a_call_each_with_one_token_more_repeat_those_before():
    analysis = placed(steps_of_calls(), _softmax={"file": "/model.py", "line": 3})
    growing = with_tokens(analysis, (1, 64), (1, 65), (1, 66), (1, 70), (1, 71), before=3)
    found = only(recomputed_prefix.RULE, growing)
    assert found.evidence[0].value == 71
    assert 0 < found.est_saving_ns <= 10 * MS
    same = with_tokens(analysis, *[(1, 64)] * 5, before=3)
    assert is_silent(recomputed_prefix.RULE, same)
    sorted_batches = with_tokens(analysis, (1, 60), (1, 61), (1, 64), (1, 70), (1, 74), before=3)
    assert is_silent(recomputed_prefix.RULE, sorted_batches)


def steps_of_calls() -> Analysis:
    script = Script()
    for _ in range(2):
        for _ in range(10):
            script.launch(_ELEMENTWISE, MS, op="aten::_softmax", cost_ns=10 * US)
        script.wait()
        script.end_step()
    return script.analysis()


def test_decoding_that_waits_for_the_cpu_needs_a_static_cache_first():
    analysis = tokens_of(5 * US, cost_ns=50 * US).analysis()
    decoding = only(launch_bound.RULE, with_tokens(analysis, (8, 1), (8, 1)))
    assert decoding.remedy.startswith("a static cache")
    assert "static cache" not in only(launch_bound.RULE, analysis).remedy


def facts_of_products(analysis: Analysis, bound: str, share: int = 1) -> Facts:
    """Return facts with every ``share``-th launch a product at half the device's bandwidth."""
    facts = Facts(analysis)
    count = len(facts.launches)
    unknown = [at % share > 0 for at in range(count)]
    facts.__dict__["rooflines"] = replace(
        facts.rooflines,
        roofline_ns=np.ma.MaskedArray([50 * US] * count, unknown),
        bytes=np.ma.MaskedArray([10**6] * count, unknown),
        bound=interned([bound] * count),
        is_product=np.ones(count, np.bool_),
    )
    return facts


def test_decoding_that_reads_the_weights_for_few_tokens_has_its_roofline():
    analysis = with_tokens(tokens_of(100 * US).analysis(), (4, 1), (4, 1))
    (found,) = small_batch.RULE.judge(facts_of_products(analysis, "memory"))
    figures = {each.name: each.value for each in found.evidence}
    assert figures["tokens a step"] == 4
    assert figures["they move"] == 30 * 10**6
    assert figures["at the device's bandwidth"] == round(4e9 / (30 * 50 * US))
    assert figures["tokens a second"] < figures["at the device's bandwidth"]
    assert found.est_saving_ns == 0  # a larger batch makes no step shorter


def test_a_prefill_or_a_product_that_computes_is_no_small_batch():
    script = tokens_of(100 * US)
    whole = with_tokens(script.analysis(), (4, 64), (4, 64))
    assert small_batch.RULE.judge(facts_of_products(whole, "memory")) == ()
    decoding = with_tokens(script.analysis(), (256, 1), (256, 1))
    assert small_batch.RULE.judge(facts_of_products(decoding, "compute")) == ()


def test_products_of_unknown_bytes_leave_the_batch_unjudged():
    analysis = with_tokens(tokens_of(100 * US).analysis(), (4, 1), (4, 1))
    verdict = small_batch.RULE.judge(facts_of_products(analysis, "memory", share=2))
    assert isinstance(verdict, CannotJudge)
