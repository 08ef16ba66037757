"""What the page can be narrowed to: each slice adds up, and how many there are is bounded."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.attribution.one_step import of_step
from profiler_ext.exporters.html import html_text
from profiler_ext.exporters.html.data import report_data
from profiler_ext.exporters.html.sites import MAX_KERNELS, Pool, sites_of
from profiler_ext.exporters.html.slices import (
    MAX_RANKS,
    MAX_STEPS,
    selectable_ranks,
    selectable_steps,
)
from profiler_ext.exporters.html.steps import MAX_COLUMNS, StepColumn, chart, columns_of, parts_of
from profiler_ext.records.analysis import BreakdownRow, Step
from profiler_ext.records.vocabulary import Phase
from profiler_ext.sessions.merging import merge
from profiler_ext.sessions.session import load
from tests import frames as tables
from tests.analyses import GPU_BREAKDOWN, GPU_MARKS, GPU_ROWS, gpu_step
from tests.attribution.recordings import FIXTURES
from tests.cases.neutral import FOLDER, SUFFIX
from tests.exporters.reported import Page
from tests.handmade import launches, shares


@pytest.fixture(scope="module")
def analyses():
    """Two ranks of two steps each, recorded on two H200s."""
    names = (f"ddp.rank_{rank}.session.pt.trace.json.gz" for rank in (0, 1))
    return merge([load(FOLDER / name) for name in names]).analyses


@pytest.fixture(scope="module")
def data(analyses):
    return report_data(analyses, {})[0]


def of_slice(data, rank, step):
    (found,) = [s for s in data["slices"] if (s["rank"], s["step"]) == (rank, step)]
    return found


def step_time_breakdown_ns(analyses, step=None):
    return sum(
        line.duration_ns for a in analyses for line in a.breakdown if step in (None, line.step)
    )


def test_there_is_a_slice_for_each_rank_and_step_and_for_all_of_them(analyses, data):
    steps = [step.number for step in analyses[0].steps]
    assert [(each["rank"], each["step"]) for each in data["slices"]] == [
        (rank, step) for rank in (None, 0, 1) for step in (None, *steps)
    ]
    assert data["slices"][0]["spans"] == 4


def test_of_a_step_that_a_rank_did_not_profile_the_page_says_so(analyses):
    whole, other = analyses
    first, second = other.steps
    page = html_text([whole, of_step(other, first.number)])
    assert re.findall(r"Rank \d+ did not profile step \d+", page) == [
        f"Rank 1 did not profile step {second.number}"
    ]


def test_a_slice_has_the_time_and_the_launches_of_the_tables(analyses, data):
    for each in data["slices"]:
        chosen = [a for a in analyses if each["rank"] in (None, a.recording.settings.rank)]
        rows = [tables.by_kernel(a, step=each["step"]) for a in chosen]
        assert sum(each["times"]) == sum(int(table.duration_ns.sum()) for table in rows)
        assert sum(each["launches"]) == sum(int(table.launches.sum()) for table in rows)
        assert each["wall"] == step_time_breakdown_ns(chosen, each["step"])


def test_the_ranks_of_a_step_add_up_to_it(data):
    for step in {each["step"] for each in data["slices"]}:
        parts = [sum(of_slice(data, rank, step)["times"]) for rank in (0, 1)]
        assert sum(of_slice(data, None, step)["times"]) == sum(parts)


def test_graphs_that_are_alike_on_all_ranks_are_one(analyses, data):
    assert len(data["graphs"]) == len(analyses[0].recording.graphs)
    assert {graph for _, graph, *_ in data["sites"]} <= set(range(-1, len(data["graphs"])))


def test_the_page_of_ranks_has_a_step_time_breakdown_and_steps_for_each(analyses):
    text = html_text(analyses)
    steps = [step.number for step in analyses[0].steps]
    first, *others = Page(text).tables[: 3 * (1 + len(steps))]
    heads = ["what the device did", "time/step", "in 4 steps", "% of step", "part of the step"]
    assert first[0] == heads
    assert others[0][0][2] == "on 2 ranks"
    assert [len(table[0]) for table in others] == [5, 5, 5, 4, 4, 5, 4, 4]
    assert text.count('class="rank" data-rank=') == 2
    assert '<select id="rank"><option value="">all 2</option>' in text


def many_steps(count):
    """A session of so many steps, each twice as long as the fastest, the last but one slowest."""
    walls = [2_000_000] * count
    walls[0], walls[-2] = 1_000_000, 9_000_000
    ends = np.cumsum([0, *walls]).tolist()
    steps = tuple(Step.on_cpu(at, ends[at], ends[at + 1]) for at in range(count))
    rows = [replace(GPU_ROWS[2], step=at) for at in range(count)]
    breakdown = tuple(
        line
        for at, wall in enumerate(walls)
        for line in (
            BreakdownRow(at, 0, "compiled", "line", "line", 20_001),
            BreakdownRow(at, 0, "idle", None, "idle", wall - 20_001),
        )
    )
    return replace(
        gpu_step(),
        steps=steps,
        launches=launches(GPU_MARKS, rows),
        shares=shares(rows),
        breakdown=breakdown,
    )


def test_of_many_steps_the_slowest_the_median_and_the_fastest_can_be_chosen():
    found = selectable_steps([many_steps(1_000)], 10)
    assert len(found) == MAX_STEPS
    assert {word: step for step, word in found.items() if word} == {
        "fastest": 0,
        "median": 500,
        "slowest": 998,
    }
    assert len(selectable_steps([many_steps(1_000)], 10_000_000)) == 4


def test_the_page_does_not_grow_with_ranks_and_says_what_is_left_out():
    one = replace(gpu_step(), notes=("capture was off",))
    settings = one.recording.settings
    ranks = [
        replace(one, recording=replace(one.recording, settings=replace(settings, rank=rank)))
        for rank in range(20)
    ]
    assert len(selectable_ranks(ranks)) == MAX_RANKS
    text = html_text(ranks)
    assert len(text) - len(html_text(ranks[:12])) < 2_000
    assert f"{MAX_RANKS} of 20 ranks can be chosen: the slowest, the median, the fast" in text
    assert text.count("capture was off") == 1
    assert "20 ranks, the first 0: capture was off" in text


def test_the_page_does_not_grow_with_steps_and_says_what_is_left_out():
    few, many = html_text([many_steps(1_200)]), html_text([many_steps(4_000)])
    assert abs(len(many) - len(few)) < 4_000
    assert f"{MAX_STEPS} of 4,000 steps can be chosen: the slowest, the median, the fastest" in many
    assert "4,000 steps, 14 in a column: median 2.00 ms; slowest in 3990-3999 9.00 ms" in many


def test_a_column_of_several_steps_has_their_mean_and_their_extremes():
    columns = columns_of(many_steps(2 * MAX_COLUMNS))
    assert len(columns) == MAX_COLUMNS
    forward = tuple(20_001 if phase == Phase.FORWARD else 0 for phase in Phase)
    assert columns[0] == StepColumn(0, 1, (1_000_000, 2_000_000), 20_001, forward)
    assert columns[0].wall_ns == 1_500_000


def test_the_median_is_of_steps_and_not_of_columns_and_the_last_column_counts_as_its_steps():
    none = (0,) * len(Phase)
    columns = [StepColumn(0, 2, (100, 100, 700), 30, none), StepColumn(3, 3, (100,), 70, none)]
    assert (
        "4 steps, 3 in a column: median 100 ns; slowest in 0-2 700 ns; fastest in 0-2 100 ns; "
        "device busy 16.0%"
    ) in chart(0, columns, 700)


def numbered(analysis, numbers):
    """The same steps by other numbers."""
    steps, breakdown = (
        [replace(each, **{name: numbers[getattr(each, name)]}) for each in rows]
        for name, rows in (("number", analysis.steps), ("step", analysis.breakdown))
    )
    own = np.ma.array([numbers[step] for step in analysis.launches.step.tolist()])
    kernels = replace(analysis.launches, step=own)
    return replace(analysis, steps=tuple(steps), breakdown=tuple(breakdown), launches=kernels)


def test_steps_whose_numbers_leave_some_out_are_as_many_as_there_are():
    text = html_text([numbered(many_steps(10), [*range(5), *range(20, 25)])])
    assert "10 steps: median 2.00 ms; slowest 23 9.00 ms; fastest 0 1.00 ms" in text


def test_steps_of_one_number_are_one_column():
    first, *others = columns_of(numbered(many_steps(10), [7, *range(7, 16)]))
    assert (first.first, first.walls_ns, first.busy_ns) == (7, (3_000_000,), 40_002)
    assert [column.first for column in others] == [*range(8, 16)]


def test_a_column_is_as_high_as_its_wall_time():
    column = StepColumn(1, 1, (100,), 60, (90, 30, 0, 0, 0, 0))
    assert parts_of(column) == (45.0, 15.0, 0, 0, 0, 0, 40)


def test_the_step_time_breakdown_of_the_hand_made_step_is_of_its_device():
    (column,) = columns_of(gpu_step())
    assert column.wall_ns == sum(line.duration_ns for line in GPU_BREAKDOWN)


def test_too_many_kernels_are_one_in_name_and_keep_their_time():
    count = MAX_KERNELS + 50
    rows = [replace(GPU_ROWS[2], kernel=f"kernel_{number}") for number in range(count)]
    analysis = replace(gpu_step(), launches=launches(GPU_MARKS, rows), shares=shares(rows))
    kernels, places = Pool(), np.arange(len(analysis.places), dtype=np.int32)
    found = sites_of([analysis], kernels, [np.arange(2)], [places])
    assert len(found.sites) == MAX_KERNELS + 1
    assert kernels.values()[-1] == ("(50 smaller kernels)", "", "several")
    assert np.bincount(found.of_launch[0]).tolist() == [1] * MAX_KERNELS + [50]


def test_equal_layers_are_one_although_collectives_do_not_know_their_class() -> None:
    analysis = load(FIXTURES / f"worked/fsdp2.rank_0{SUFFIX}").analysis
    data, _ = report_data([analysis], {})
    assert {f"blocks.{number}" for number in range(12)} <= set(data["layers"])
    every, *_ = data["slices"]
    assert [path for path, _, _ in every["outliers"]] == ["blocks.11"]
