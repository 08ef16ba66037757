"""The questions that the page of Perfetto answers are answered, on a recorded training step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import profiler_ext
from profiler_ext.exporters.perfetto import queries
from tests.book.recordings import RECORDED
from tests.cases.neutral import SUFFIX
from tests.trace_processor import Reader, reading

PAGE = Path(__file__).parents[2] / "docs" / "perfetto.md"
(QUESTIONS,) = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    session = profiler_ext.load(RECORDED / f"worked/gpt_compiled{SUFFIX}")
    with reading(session.export(tmp_path_factory.mktemp("trace") / "step.pftrace")) as reader:
        yield reader


@pytest.fixture(scope="module")
def answers(step: Reader) -> dict[str, list[tuple[Any, ...]]]:
    asked = re.findall(r"^-- (\d+)\. [^\n]*\n(.*?);$", QUESTIONS, re.DOTALL | re.MULTILINE)
    step.rows(queries())
    return {number: step.rows(sql) for number, sql in asked}


def test_each_question_is_answered(answers: dict[str, list[tuple[Any, ...]]]) -> None:
    assert [*answers] == [str(number) for number in range(1, 11)]
    assert [number for number, rows in answers.items() if not rows] == ["10"]


def test_the_answers_are_those_of_the_tables(answers: dict[str, list[tuple[Any, ...]]]) -> None:
    session = profiler_ext.load(RECORDED / f"worked/gpt_compiled{SUFFIX}")
    lines = session.by_line()
    reported = lines[lines.file.str.endswith("gpt.py") & (lines.line == 36)].duration_ns.sum()
    assert sum(row[2] for row in answers["1"]) == reported
    steps = session.launches().groupby("step").duration_ns.agg(["count", "sum"])
    expected = [(step, *map(int, row)) for step, row in zip(steps.index, steps.values, strict=True)]
    assert answers["7"] == expected
    assert sum(row[-1] for row in answers["8"]) == session.idle_by_cause().duration_ns.sum()


# What the viewer's search runs: names and arguments, in the order of time.
SEARCH = """
    select category, name, dur
    from slice where name glob '*{0}*' or arg_set_id in (
        select arg_set_id from args where string_value glob '*{0}*' or key glob '*{0}*')
    order by ts limit 1
"""


def test_the_first_hit_of_a_search_for_a_line_is_a_kernel_of_it(step: Reader) -> None:
    [(category, name, duration_ns)] = step.rows(SEARCH.format("gpt.py:36"))
    assert (category, duration_ns) == ("triton", 20_768)
    assert (
        name == "triton_per_fused__to_copy_add_native_layer_norm_native_layer_norm_backward_view_5"
    )


def test_the_first_hit_of_a_search_for_a_kernel_is_the_kernel(step: Reader) -> None:
    kernels = step.rows("select distinct name from slice where category = 'triton'")
    assert len(kernels) == 46
    for (kernel,) in kernels:
        [(category, name, duration_ns)] = step.rows(SEARCH.format(kernel))
        assert (category, duration_ns > 0) == ("triton", True) and name.startswith(kernel)


def test_the_call_that_launches_a_kernel_says_which(step: Reader) -> None:
    calls = step.rows("""
        select distinct call.name as call, kernel.name as kernel
        from flow join slice kernel on flow.slice_in = kernel.id
        join slice driver on flow.slice_out = driver.id
        join slice call on driver.parent_id = call.id
        where kernel.category = 'triton' and call.category = 'cpu_op'
    """)
    assert len(calls) == 46
    assert all(call == "launch " + kernel.replace("_", " ") for call, kernel in calls)


def test_each_line_has_a_colour_of_its_own(step: Reader) -> None:
    lines = [
        name
        for (name,) in step.rows("select distinct name from slice where category = 'source line'")
    ]
    # The viewer's colours are hashes of this.
    coloured = {re.sub(r"( )?\d+", "", name) for name in lines}
    assert len(coloured) == len(lines) == 12
    assert "gpt.py:36  return self.down(F.gelu(self.up(x)))" in lines
    assert max(map(len, lines)) <= 100


def test_idle_time_is_coloured_by_its_cause(step: Reader) -> None:
    causes = step.rows("""
        select distinct extract_arg(arg_set_id, 'correlation_id') as colour,
                        extract_arg(arg_set_id, 'debug.cause') as cause
        from slice where category = 'idle'
    """)
    assert len(causes) > 3 and all(colour == cause for colour, cause in causes)


def test_the_time_axis_ends_with_the_recording(step: Reader) -> None:
    [(start_ns, end_ns)] = step.rows("select start_ts, end_ts from trace_bounds")
    [(last_ns,)] = step.rows("select max(ts + dur) as n from slice where category = 'cpu_op'")
    assert end_ns == last_ns and end_ns - start_ns < 1.01 * 133_800_000


@pytest.mark.parametrize("name", ["worked/gpt_eager", "cases/checkpoint", "cases/side_stream"])
def test_each_launch_lies_in_the_phase_lane_below_its_phase(name: str, tmp_path: Path) -> None:
    session = profiler_ext.load(RECORDED / f"{name}{SUFFIX}")
    with reading(session.export(tmp_path / "step.pftrace")) as reader:
        spans = reader.rows(
            "select name, ts, ts + dur as until from slice where category = 'phase'"
        )
    launches = session.launches()[["phase", "start_ns", "duration_ns"]].itertuples(index=False)
    for phase, start_ns, duration_ns in launches:
        assert any(
            name == phase and start <= start_ns and start_ns + duration_ns <= until
            for name, start, until in spans
        )
