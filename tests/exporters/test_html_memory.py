"""The page's section on device memory: its sums are the peak's, and it is operated by keys."""

from __future__ import annotations

import json
import re

import pytest

from profiler_ext.exporters.html import html_text
from profiler_ext.exporters.views.formatting import size_text
from tests.analyses import gpu_step
from tests.exporters.opened import browser, page, searched, texts, written
from tests.memory.test_recorded_peaks import PEAKS, recorded

__all__ = ["browser", "page"]

NAME = "gpt_compiled"
PEAK = PEAKS[NAME][0]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    text = html_text([recorded(NAME).analysis])
    return written(tmp_path_factory.mktemp("memory"), text)


def data_of(text: str):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])["memory"]


@pytest.mark.parametrize("name", PEAKS)
def test_rows_and_kinds_of_each_step_are_the_allocators_peak(name):
    steps = data_of(html_text([recorded(name).analysis]))["steps"]
    on_device = sorted((s for s in steps if s["device"] == "device 0"), key=lambda s: s["step"])
    assert tuple(step["peak"] for step in on_device) == PEAKS[name]
    for step in steps:
        peaks_of_rows = [row[17] for row in step["rows"]]
        assert sum(peaks_of_rows) + step["rest"][1] == step["peak"]
        moments = [sum(each) for each in zip(*step["bytes"], strict=True)]
        totals = [sum(moments[: at + 1]) for at in range(len(moments))]
        times = [sum(step["times"][: at + 1]) for at in range(len(moments))]
        assert max(totals) == step["peak"] == totals[times.index(step["at"])]


def test_a_page_without_memory_has_no_such_section():
    text = html_text([gpu_step()])
    assert 'id="memory"' not in text and data_of(text)["steps"] == []


def test_it_says_where_the_peak_is(page):
    sentence = f"Peak of device 0: 404 MiB ({PEAK:,} bytes) in step 5, backward at"
    assert sentence in texts(page, "#memory > p")[0]
    assert page.locator("#memory text.peak").text_content() == "peak 404 MiB"
    about = texts(page, "#memory .memory-chart .about")[0]
    assert ", the peak: 404 MiB allocated: saved activations 148 MiB, optimizer state" in about


def test_keys_read_the_chart_and_p_goes_to_the_peak(page):
    chart = page.locator("#memory [role=slider]")
    chart.focus()
    at_peak = chart.get_attribute("aria-valuetext")
    page.keyboard.press("ArrowRight")
    assert "the peak" not in chart.get_attribute("aria-valuetext")
    page.keyboard.press("Home")
    assert chart.get_attribute("aria-valuetext").startswith("0 ns into the step")
    page.keyboard.press("p")
    assert chart.get_attribute("aria-valuetext") == at_peak


def test_the_key_of_a_kind_shows_it_alone(page):
    page.click("#memory .legend button:has-text('workspaces')")
    assert page.locator("#memory .pager").inner_text() == "9 rows"
    assert page.locator("#memory [aria-pressed=true]").count() == 1
    page.click("#memory .legend button:has-text('workspaces')")
    assert "of 3" in page.locator("#memory .pager").inner_text()


def test_the_search_finds_a_parameter_and_a_link_leads_to_it(page, report):
    searched(page, "exp_avg of head.weight")
    assert texts(page, "#memory tbody .over") == ["exp_avg of head.weight (optimizer state)"]
    page.goto("about:blank")
    page.goto(f"{report}#memory=exp_avg of head.weight")
    assert "lives because" in page.locator("#memory .detail").inner_text()


def test_the_flame_graph_is_of_the_peak(page):
    assert page.evaluate("shown.memory.view.flame.data.value") == PEAK
    assert "The peak by module, then line: 404 MiB" in texts(page, "#memory h3")


def test_a_chosen_step_is_the_one_shown(page):
    page.select_option("#step", "7")
    assert page.evaluate("shown.memory.view.step.step") == 7
    assert page.evaluate("shown.memory.view.step.device") == "device 0"


@pytest.mark.parametrize("width", [600, 900])
def test_a_narrow_window_shows_the_peak_and_is_not_wider_than_itself(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    assert page.locator("#memory th", has_text="at peak").is_visible()
    assert page.locator("#memory text.peak").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.set_viewport_size({"width": 1400, "height": 900})


def test_sizes_read_as_everywhere_else(page):
    sizes = [0, 511, 1023, 1024, 1152, 1179648, 65792, 423486464, 1_070_000_000, 1_047_000, 1 << 40]
    sizes += [1048575, 10_235_000, 1_022_500_000, 131_621_000, 537_559_040, 12_301_824]
    shown = page.evaluate("sizes => sizes.map(sizeText)", sizes)
    assert shown == [size_text(each) for each in sizes]
