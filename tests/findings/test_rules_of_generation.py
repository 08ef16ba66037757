"""Generation: calls that run over all tokens so far, and caches that grow by copies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.findings.rules import growing_cache, recomputed_prefix
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.lineage import Frame
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


def appended(cat_ns: int, count: int = 2) -> Analysis:
    script = Script()
    for _ in range(3):
        for _ in range(count):
            script.launch(_CAT, cat_ns, op="aten::cat")
            script.launch(_ELEMENTWISE, 20 * US, op="aten::add")
            script.launch(_ELEMENTWISE, 20 * US, op="aten::mul")
        script.wait()
        script.end_step()
    return placed(script.analysis(), cat={"file": "/model.py", "line": 7})


def test_a_cat_far_larger_than_the_values_of_a_step_copies_a_cache():
    found = only(growing_cache.RULE, appended(400 * US))
    assert found.est_saving_ns == 800 * US
    assert (found.location.file, found.location.line) == ("/model.py", 7)


def test_a_cat_as_large_as_other_values_or_once_a_step_is_none():
    assert is_silent(growing_cache.RULE, appended(100 * US))
    assert is_silent(growing_cache.RULE, appended(400 * US, count=1))


def test_a_cat_in_training_is_none():
    assert is_silent(growing_cache.RULE, _in_phase(appended(400 * US), Phase.BACKWARD))


def _in_phase(analysis: Analysis, phase: Phase) -> Analysis:
    phases = interned([phase.value] * len(analysis.launches))
    return replace(analysis, launches=replace(analysis.launches, phase=phases))
