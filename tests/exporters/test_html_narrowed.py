"""In Chromium the page of two ranks narrows to a rank and a step, and each time is of that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.exporters.html import html_text
from profiler_ext.sessions.merging import merge
from profiler_ext.sessions.session import load
from tests import frames as tables
from tests.analyses import GPU_MARKS, GPU_PLACES, GPU_ROWS, gpu_step
from tests.browser import open_page
from tests.cases.neutral import FOLDER
from tests.exporters.opened import page, searched, written
from tests.exporters.test_html_slices import many_steps
from tests.handmade import launches, shares

__all__ = ["page"]


@pytest.fixture(scope="module")
def analyses():
    names = (f"ddp.rank_{rank}.session.pt.trace.json.gz" for rank in (0, 1))
    return merge([load(FOLDER / name) for name in names]).analyses


@pytest.fixture(scope="module")
def report(analyses, tmp_path_factory):
    return written(tmp_path_factory.mktemp("ranks"), html_text(analyses))


@pytest.fixture(scope="module")
def browser():
    with open_page(viewport={"width": 900, "height": 900}) as (page, troubles):
        yield page, troubles


def test_a_rank_and_a_step_narrow_all_that_is_shown(page, analyses):
    page.select_option("#rank", "1")
    page.select_option("#step", "0")
    expected = tables.by_kernel(analyses[1], step=0)
    assert page.evaluate("wholeTime") == int(expected.duration_ns.sum())
    assert page.evaluate("kernels.reduce((sum, each) => sum + each.launches, 0)") == int(
        expected.launches.sum()
    )
    assert page.locator("#breakdown table:visible").count() == 1
    assert page.locator("#steps .rank:visible").count() == 1
    heads = [text.strip() for text in page.locator("#kernels th:visible").all_inner_texts()]
    assert heads[:2] == ["kernel", "time"]


def test_what_is_chosen_is_in_the_address_and_comes_back(page):
    page.select_option("#rank", "1")
    searched(page, "attention")
    link = page.evaluate("location.href")
    page.goto("about:blank")
    page.goto(link)
    assert page.input_value("#rank") == "1"
    assert page.evaluate("slice.rank") == 1
    page.wait_for_function("() => searching.isSettled")
    assert "hits" in page.inner_text("#status")


def test_times_are_the_mean_of_a_step_or_their_sum(page):
    first = "#kernels tbody tr:first-child td:nth-child(2)"
    mean = page.inner_text(first)
    assert page.inner_text("#kernels th:nth-child(2)").strip() == "time/step"
    page.select_option("#unit", "sum")
    assert page.inner_text("#kernels th:nth-child(2)").strip() == "time"
    total = page.evaluate("Math.max(...kernels.map(each => each.total))")
    texts = (f"timeText({total} / 4)", f"timeText({total})")
    assert [mean, page.inner_text(first)] == [page.evaluate(text) for text in texts]


@pytest.mark.parametrize("width", [900, 1280, 1920])
def test_nothing_is_wider_than_the_page(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.eval_on_selector_all("#kernels .twist", "all => all.slice(0, 2).forEach(b => b.click())")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = "each => each.scrollWidth > each.clientWidth + 1"
    tables_shown = f"[...document.querySelectorAll('#kernels, #modules, #lines')].filter({wide})"
    assert page.evaluate(f"{tables_shown}.map(each => each.id)") == []


def test_the_name_of_a_kernel_has_the_width_of_the_table(page):
    page.set_viewport_size({"width": 900, "height": 900})
    widths = page.eval_on_selector_all(
        "#kernels .over", "all => all.map(each => [each.scrollWidth, each.clientWidth])"
    )
    assert len(widths) == 15 and all(shown > 780 for _, shown in widths)


def test_a_kernel_of_the_device_is_called_short_and_its_title_is_whole(page):
    name = page.locator("#kernels .kernel[title^=nccl]").first
    assert name.inner_text() == "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    assert name.get_attribute("title") == f"{name.inner_text()}(ncclDevKernelArgsStorage<4096ul>)"


def test_a_step_of_the_chart_is_read_and_chosen(browser, tmp_path):
    page, troubles = browser
    page.goto(written(tmp_path, html_text([many_steps(20)])))
    chart = page.locator(".chart svg")
    chart.hover(position={"x": 2, "y": 20})
    assert page.inner_text(".chart .about").startswith("step 0: 1.00 ms, device busy 2.0%; forward")
    chart.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.input_value("#step") == "1"
    assert page.evaluate("slice.step") == 1
    assert page.get_attribute(".chart .chosen", "d") == "M1 0h1v1000h-1z"
    assert troubles == []


def layered():
    """A step of five layers of which one takes three times as long as the others."""
    named = [(f"layers.{at}.mlp", 60_000 if at == 3 else 20_000) for at in range(5)]
    places = tuple(replace(GPU_PLACES[2], module=path, module_class="MLP") for path, _ in named)
    rows = [replace(GPU_ROWS[2], parts=((at, time),)) for at, (_, time) in enumerate(named)]
    kernels = launches(GPU_MARKS, rows)
    lengths = np.array([time for _, time in named])
    kernels = replace(kernels, duration_ns=lengths)
    return replace(gpu_step(), places=places, launches=kernels, shares=shares(rows))


def test_layers_are_one_and_that_which_stands_out_is_named(browser, tmp_path):
    page, troubles = browser
    page.goto(written(tmp_path, html_text([layered()])))
    names = "#modules tbody td:first-child"
    shown = page.locator(f"{names} .label").all_inner_texts()
    assert [text.strip() for text in shown] == [
        *("(the model itself)", "layers", "layers.* \N{MULTIPLICATION SIGN}5", "mlp MLP"),
    ]
    assert page.inner_text("#modules .outlier") == ("layers.3 60.0 us: sibling median 20.0 us")
    page.uncheck("#fold")
    assert page.locator(names).count() == 2 + 2 * 5
    assert page.locator("#modules .outlier").count() == 1
    searched(page, "layers.3")
    page.press("#search", "Enter")
    assert "mlp" in page.inner_text("#modules tr.target")
    assert troubles == []
