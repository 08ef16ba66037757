"""The timeline of a step has each launch of it, or says which are merged, and leads to lines."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from profiler_ext import load
from profiler_ext.exporters.html import html_text
from profiler_ext.exporters.html.data import report_data
from profiler_ext.exporters.html.timeline import MAX_SPANS_OF_STEP, spans_of
from tests.attribution.recordings import FIXTURES
from tests.cases.neutral import SUFFIX
from tests.exporters.opened import browser, many, page, report, written
from tests.exporters.test_html_slices import many_steps

__all__ = ["browser", "page", "report"]
START, LENGTH, BUSY, COUNT = 1, 2, 3, 5


def recorded(name):
    return load(FIXTURES / f"{name}{SUFFIX}").analysis


@pytest.fixture(scope="module")
def gpt():
    return recorded("worked/gpt_compiled")


@pytest.fixture(scope="module")
def timelines(gpt):
    return report_data([gpt], {})[0]["timelines"]


def test_each_launch_of_a_step_is_a_span_of_its_own(gpt, timelines):
    launches = gpt.launches
    for step in timelines:
        rows = np.flatnonzero(np.ma.filled(launches.step == step["step"], False))
        rows = rows[np.argsort(launches.start_ns[rows])]
        lengths = [span[LENGTH] for span in step["spans"]]
        assert lengths == launches.duration_ns[rows].tolist()
        assert {span[COUNT] for span in step["spans"]} == {1} and step["moment"] == 0


def test_its_idle_time_is_that_of_the_breakdown(gpt, timelines):
    for step in timelines:
        idle = sum(
            row.duration_ns
            for row in gpt.breakdown
            if row.step == step["step"] and row.scope == "idle"
        )
        assert sum(span[BUSY] for span in step["idle"]) == idle > 0
        assert {step["causes"][span[4]] for span in step["idle"]} >= {"CPU launch overhead"}


def test_collectives_have_lanes_of_their_own():
    (step,) = report_data([recorded("worked/fsdp2.rank_0")], {})[0]["timelines"]
    assert step["lanes"] == [
        *("stream 7", "stream 15"),
        *("collectives, stream 18", "collectives, stream 19", "collectives, stream 23"),
    ]


def test_of_many_steps_the_slowest_the_median_and_the_fastest_are_there():
    data, _ = report_data([many_steps(40)], {})
    assert [step["step"] for step in data["timelines"]] == [0, 20, 38]
    assert {step["of"] for step in data["timelines"]} == {40}


def test_short_pieces_of_a_moment_are_one_span_and_long_ones_are_not():
    start = np.array([0, 2, 4, 100, 300, 302], np.int64)
    length = np.array([1, 1, 1, 150, 1, 1], np.int64)
    spans, moment_ns = spans_of(np.zeros(6, np.int64), start, length, 3)
    assert 2 < moment_ns <= 150
    assert spans.start_ns.tolist() == [0, 100, 300]
    assert spans.end_ns.tolist() == [5, 250, 303]
    assert spans.busy_ns.tolist() == [3, 150, 2]
    assert spans.count.tolist() == [3, 1, 2]


def test_a_merged_span_never_reaches_over_another_of_its_lane():
    random = np.random.default_rng(3)
    length = random.integers(1, 60, 5_000)
    start = np.cumsum(random.integers(1, 30, 5_000) + np.append(0, length[:-1]))
    lane = random.integers(0, 3, 5_000)
    spans, _ = spans_of(lane, start, length, 300)
    assert len(spans.count) <= 300
    for each in range(3):
        own = spans.lane == each
        assert (spans.start_ns[own][1:] >= spans.end_ns[own][:-1]).all()


def test_a_step_of_any_number_of_launches_has_a_bounded_timeline():
    step = many(20_000)
    spread = np.arange(20_000, dtype=np.int64) * 50
    length = np.full(20_000, 20, np.int64)
    step = replace(step, launches=replace(step.launches, start_ns=spread, duration_ns=length))
    (timeline,) = report_data([step], {})[0]["timelines"]
    assert timeline["launches"] == sum(span[COUNT] for span in timeline["spans"]) == 20_000
    assert len(timeline["spans"]) <= MAX_SPANS_OF_STEP and timeline["moment"] > 20
    assert len(json.dumps(timeline)) < 200_000


@pytest.fixture(scope="module")
def opened(gpt, tmp_path_factory):
    return written(tmp_path_factory.mktemp("timeline"), html_text([gpt]))


def test_the_arrow_keys_go_from_kernel_to_kernel_and_enter_to_the_line(page, opened):
    page.goto(opened)
    page.focus("#timeline canvas")
    page.keyboard.press("ArrowRight")
    first = page.inner_text("#timeline .about")
    page.keyboard.press("ArrowRight")
    assert first != page.inner_text("#timeline .about")
    assert page.inner_text("#timeline .about").startswith("triton_poi_fused__to_copy_1 ")
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#timeline .about").startswith("device idle ")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.hash.startsWith('#line=')")
    assert page.get_attribute(".target", "data-line").endswith("gpt.py:62")
    assert page.evaluate("document.querySelector('.target').contains(document.activeElement)")


def test_a_click_on_a_kernel_leads_to_its_line_and_back_leads_here(page, opened):
    page.goto(opened)
    page.locator("#timeline canvas").scroll_into_view_if_needed()
    box = page.locator("#timeline canvas").bounding_box()
    x = page.evaluate("timeline.xOf(timeline.step.byLane[1][300].start + 500)")
    path = page.evaluate("timeline.step.byLane[1][300].line.path")
    page.mouse.click(box["x"] + x, box["y"] + 44)
    page.wait_for_selector(".target")
    assert page.get_attribute(".target", "data-line") == path
    assert page.evaluate("timeline.marked.path") == path


def test_it_zooms_and_never_leaves_the_step(page, opened):
    page.goto(opened)
    seen = "[timeline.from, timeline.to, timeline.step.wall]"
    page.click("#timeline button:text-is('zoom in')")
    start, end, wall = page.evaluate(seen)
    assert end - start == pytest.approx(wall / 2)
    for _ in range(40):
        page.press("#timeline canvas", "+")
    start, end, wall = page.evaluate(seen)
    assert 0 <= start < end <= wall and end - start < wall / 1_000
    page.click("#timeline button:text-is('whole step')")
    assert page.evaluate(seen) == [0, wall, wall]


def test_it_is_of_the_step_that_the_page_is_narrowed_to(page, opened):
    page.goto(opened)
    page.select_option("#step", "11")
    assert page.evaluate("timeline.step.step") == 11
    assert page.inner_text("#timeline .scroll ~ p, #timeline p.quiet >> nth=-1") == (
        "Every launch of the step (673) is drawn."
    )
