"""A model that a loop calls for each part of what could be one batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.findings.code_of_lines import is_mapped
from profiler_ext.findings.facts import facts_of
from profiler_ext.findings.rules import split_batch
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.lineage import Frame
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import ELEMENTWISE, US, Script, at, is_silent, only, placed
from tests.handmade import interned


def looped(code: str, *, trains: bool = False, sizes: int = 1) -> Analysis:
    """Steps in which one line calls a model of twenty launches five times, and another follows."""
    script, phases = Script(), []
    for _ in range(3):
        for part in range(5):
            for number in range(20):
                grid = {"grid": [1 + part % sizes, 1, 1], "block": [128, 1, 1]}
                op = f"aten::mul_{number}"
                script.launch(f"elementwise_{number}", 1 * US, op=op, **grid)
                phases.append("forward")
            if trains:
                script.launch(ELEMENTWISE, 1 * US, op="aten::behind")
                phases.append("backward")
        script.launch(ELEMENTWISE, 1 * US, op="aten::stack")
        phases.append("other")
        script.wait()
        script.end_step()
    calling = Frame("/infer.py", 7, "run", code)
    places = {
        f"mul_{number}": at(
            number,
            "mul",
            module=f"net.{number}",
            stack=(calling, Frame("/model.py", number, "forward", "...")),
        )
        for number in range(20)
    }
    places["behind"] = at(3, "mul", Phase.BACKWARD, module="net.3", stack=(calling,))
    places["stack"] = at(8, stack=(Frame("/infer.py", 8, "run", "y = torch.stack(out)"),))
    analysis = placed(script.analysis(), **places)
    return replace(analysis, launches=replace(analysis.launches, phase=interned(phases)))


@pytest.mark.parametrize(
    "code", ["out = [net(x) for x in xs]", "out.append(net(x[None]))", "total += net(x).sum()"]
)
def test_a_model_that_a_loop_calls_for_each_part_costs_the_launches_of_one(code: str):
    found = only(split_batch.RULE, looped(code))
    assert (found.location.file, found.location.line) == ("/infer.py", 7)
    assert "called 5 times" in found.summary
    # 80 of 100 launches of 10 us, on a CPU 1.45 times as fast
    assert found.est_saving_ns == pytest.approx(80 * 10 * US / 1.45, rel=0.2)


@pytest.mark.parametrize(
    "code", ["x = net(x)", "logits = net(tokens)", "out = net(torch.stack(xs))"]
)
def test_a_loop_whose_rounds_need_each_other_is_no_batch(code: str):
    assert is_silent(split_batch.RULE, looped(code))


def test_short_kernels_run_once_for_all_parts_besides_what_the_cpu_saves():
    analysis = looped("out = [net(x) for x in xs]")
    (candidate,) = split_batch.RULE.judge(facts_of(analysis))
    # 100 launches of a microsecond in place of 20
    assert candidate.busy_ns == 80 * US
    assert only(split_batch.RULE, analysis).est_saving_ns == candidate.est_saving_ns


def test_parts_of_unlike_sizes_are_no_batch_that_was_split():
    assert is_silent(split_batch.RULE, looped("out = [net(x) for x in xs]", sizes=3))


def test_gradients_that_are_accumulated_are_no_batch_that_was_split():
    assert is_silent(split_batch.RULE, looped("total += train(x)", trains=True))


def test_a_comprehension_maps_what_it_loops_over() -> None:
    assert is_mapped("out = torch.cat([net(x[None]) for x in xs])")
    assert not is_mapped("out = [net(y) for _ in range(n)]")
    assert not is_mapped("out = net(xs")
