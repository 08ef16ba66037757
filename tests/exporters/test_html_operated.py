"""The report by keyboard and search: the focus stays, no key waits, each link has its section."""

from __future__ import annotations

import pytest

from profiler_ext import load
from profiler_ext.exporters.html import html_text
from tests.attribution.recordings import FIXTURES
from tests.browser import open_page
from tests.cases.neutral import FOLDER, SUFFIX
from tests.exporters.opened import searched, texts, written

LARGEST = FIXTURES / "worked" / f"gpt_compiled{SUFFIX}"  # whose page is: kernels, and their code
FOCUSED = "document.activeElement.dataset.key ?? document.activeElement.className"
PHASES = ("forward", "backward", "recompute", "rest")
WATCH = """() => {
  window.longest = 0;
  const watch = new PerformanceObserver(list => {
    for (const { processingStart, processingEnd } of list.getEntries()) {
      window.longest = Math.max(window.longest, processingEnd - processingStart);
    }
  });
  watch.observe({ type: "event", durationThreshold: 16 });
}"""


@pytest.fixture(scope="module")
def browser():
    with open_page(viewport={"width": 1100, "height": 900}) as (page, troubles):
        yield page, troubles


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("largest")
    session = load(LARGEST, roots=[FIXTURES.parents[2] / "examples"])
    return session.export(folder / "report.html").as_uri()


@pytest.fixture
def page(browser, report):
    page, troubles = browser
    page.set_viewport_size({"width": 1100, "height": 900})
    page.goto("about:blank")
    troubles.clear()
    page.goto(report)
    yield page
    assert troubles == []


def heads(page, table):
    return [
        text.strip(" ▾▴") for text in texts(page, f"#{table} .scroll > table > thead th:visible")
    ]


@pytest.mark.parametrize(
    "width", [900, *(pytest.param(each, marks=pytest.mark.whole) for each in (1100, 1400)), 1920]
)
def test_each_phase_has_a_column_that_can_be_seen(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    for table in ("lines", "modules", "kernels"):
        assert set(PHASES) <= set(heads(page, table))
    edges = page.eval_on_selector_all(
        ".scroll", "all => all.filter(each => each.scrollWidth > each.clientWidth + 1).length"
    )
    assert edges == 0


def test_lines_come_first_modules_next_to_them_and_kernels_after(page):
    page.set_viewport_size({"width": 1400, "height": 900})
    lines, modules, kernels = (
        page.locator(f"#{name}").bounding_box() for name in ("lines", "modules", "kernels")
    )
    assert lines["y"] == modules["y"] < kernels["y"]
    assert lines["x"] < modules["x"]


def test_the_phases_of_each_row_add_up_to_its_time(page):
    sums = page.evaluate(
        "[...lines, ...modules, ...kernels].map(row => [row.total, "
        "PHASE_COLUMNS.reduce((time, column) => time + phaseTime(row, column), 0)])"
    )
    assert len(sums) > 100 and all(total == phases for total, phases in sums)


def test_backward_is_one_number_on_the_page(page):
    backward = page.evaluate(
        "sumText(kernels.reduce((time, each) => time + each.phases[PHASES.indexOf('backward')], 0))"
    )
    assert f"backward {backward}" in page.inner_text("#steps .legend")
    assert f"backward: {backward}" in page.inner_text("#flame")


@pytest.mark.parametrize("table", ["lines", "modules", "kernels"])
def test_a_table_is_sorted_by_backward_and_the_heading_keeps_the_focus(page, table):
    page.focus(f"#{table} th button:text-is('backward')")
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "sort backward"
    assert page.get_attribute(f"#{table} th:has(button:text-is('backward'))", "aria-sort") == (
        "descending"
    )
    most = page.evaluate("Math.max(...lines.map(row => row.phases[PHASES.indexOf('backward')]))")
    if table == "lines":
        column = heads(page, table).index("backward") + 1
        first = page.locator(f"#lines tbody tr >> nth=0 >> td:visible >> nth={column - 1}")
        assert first.inner_text() == page.evaluate(f"sumText({most})")


@pytest.mark.parametrize("opener", ["#lines .twist", "#kernels .twist", "#modules .own"])
def test_enter_opens_a_row_and_the_focus_stays(page, opener):
    page.focus(opener)
    key = page.evaluate(FOCUSED)
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == key
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"


def test_the_flame_graph_is_walked_zoomed_and_left_by_keys(page):
    page.focus(".flame")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    assert page.inner_text(".flame + .about").startswith("module attention ")
    page.keyboard.press("ArrowRight")
    assert page.inner_text(".flame + .about").startswith("module mlp ")
    page.keyboard.press("Enter")
    assert page.locator(".flame").nth(0).locator("g.fade").count() > 0
    page.keyboard.press("Escape")
    assert page.locator(".flame").nth(0).locator("g.fade").count() == 0


def test_a_step_s_bar_shows_it_alone_and_again_all(page):
    page.focus(".step button >> nth=1")
    page.keyboard.press("Enter")
    assert page.evaluate("slice.step") == 9
    page.keyboard.press("Enter")
    assert page.evaluate("slice.step") is None


@pytest.mark.parametrize(
    ("term", "first"),
    [
        ("gpt.py:36", "line with time gpt.py:36 return self.down(F.gelu(self.up(x)))"),
        ("gpt.py", "file gpt.py"),
        ("gpt.py:37", "source line gpt.py:37"),
        ("blocks.3.mlp", "module blocks.3.mlp MLP"),
        ("triton_poi_fused_gelu_view_8", "kernel triton_poi_fused_gelu_view_8"),
    ],
)
def test_what_is_named_is_the_first_hit(page, term, first):
    searched(page, term)
    assert page.inner_text("#hits li >> nth=0").strip() == first


def test_no_key_waits_for_the_search(page):
    page.evaluate(WATCH)
    page.click("#search")
    for term in ("t", "triton_", "gpt.py:36"):
        page.keyboard.type(term, delay=20)
        page.wait_for_function("() => searching.isSettled && !searching.waiting")
        page.keyboard.press("Escape")
    searched(page, "t")
    assert page.evaluate("searching.index.entries.length") > 10_000
    assert page.evaluate("longest") < 50


@pytest.mark.parametrize("name", ["findings/unlike_siblings", "worked/infer_default"])
def test_each_link_of_the_navigation_has_its_section(browser, tmp_path, name):
    page, _ = browser
    page.goto(written(tmp_path, html_text([load(FIXTURES / f"{name}{SUFFIX}").analysis])))
    there = page.eval_on_selector_all(
        "nav .links a", "all => all.map(a => document.querySelector(a.hash)?.offsetHeight ?? 0)"
    )
    assert len(there) >= 8 and min(there) > 0


def test_a_session_without_lines_links_to_none_of_them(browser, tmp_path):
    page, _ = browser
    analysis = load(FOLDER / f"adamw_eager{SUFFIX}").analysis
    page.goto(written(tmp_path, html_text([analysis])))
    links = texts(page, "nav .links a")
    sections = page.eval_on_selector_all("main section[id]", "all => all.map(each => each.id)")
    assert len(links) == len(set(sections))
    assert ("graphs" in links) == bool(analysis.recording.graphs)


def test_a_line_without_time_is_counted_and_not_listed(page):
    assert "8 more lines fused at no cost" in page.inner_text("#lines .pager")
    assert page.evaluate("shown.line.view.rows.every(row => row.total)")


def test_a_fused_op_has_its_line_and_its_time_by_phase(page):
    page.evaluate("location.hash = 'kernel=triton_poi_fused_gelu_gelu_backward_view_8'")
    page.wait_for_selector("#kernels .fused-ops")
    assert texts(page, "#kernels .fused-ops th") == [
        *("fused op", "line", "time/step", "backward", "recompute", "module"),
    ]
    row = texts(page, "#kernels .fused-ops tbody tr >> nth=0 >> td")
    assert row[1].startswith("gpt.py:36") and row[2] == row[3] and row[5] == "blocks.*.mlp"
    assert texts(page, "#kernels .detail h3")[0] == "source lines"
