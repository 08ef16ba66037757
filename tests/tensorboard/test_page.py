"""The view in TensorBoard itself, in Chromium: it sorts, searches, opens, compares, warns."""

from __future__ import annotations

import pytest

from profiler_ext.exporters.tensorboard_plugin.writing import make_document
from tests.browser import open_page
from tests.tensorboard.sessions import EVIL, mlp

# TensorBoard's own page warns of its own library; a file that cannot be shown is no success.
EXPECTED = (
    "warning: WARNING: Multiple instances of Three.js being imported.",
    "error: Failed to load resource: the server responded with a status of 422",
)


@pytest.fixture(scope="module")
def browser(server):
    with open_page(server, viewport={"width": 1400, "height": 900}) as (page, troubles):
        # A page by itself has an icon; the server has none for a frame's.
        page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
        yield page, troubles


@pytest.fixture
def within(browser, server):
    """The view within TensorBoard's own page, which takes seconds to draw."""
    page, _ = browser
    page.goto("about:blank")
    page.goto(f"{server}#profiler_ext")
    yield from of_first_run(page.frame_locator("iframe[src*=profiler_ext]"), browser)


@pytest.fixture
def view(browser, server):
    """The page that TensorBoard puts into a frame, by itself."""
    page, _ = browser
    page.goto(f"{server}data/plugin_entry.html?name=profiler_ext")
    yield from of_first_run(page, browser)


def of_first_run(view, browser):
    """The view with the first run alone; nothing else may have been asked or have gone wrong."""
    _, troubles = browser
    view.get_by_label("first/rank0", exact=True).check()
    view.get_by_label(f"{EVIL}/rank0").uncheck()
    view.locator(".content table").wait_for()
    yield view
    assert [each for each in troubles if not each.startswith(EXPECTED)] == []


def cells(frame, column: int, table: str = ".content") -> list[str]:
    return frame.locator(f"{table} tbody tr td:nth-child({column})").all_inner_texts()


def heads(frame) -> list[str]:
    return [text.strip() for text in frame.locator(".content th").all_inner_texts()]


def turn_to(frame, title: str) -> None:
    frame.get_by_role("tab", name=title).click()


def test_the_lines_stand_with_the_largest_first(view):
    assert heads(view) == [
        "time/step", "% busy", "", "line", "code", "forward", "backward", "recompute",
        "optimizer", "other", "inclusive", "launches/step", "roofline",
    ]  # fmt: skip
    assert list(zip(cells(view, 1), cells(view, 4), strict=True)) == [
        ("33.8 us", "(no source line)"),
        ("23.7 us", "examples/mlp.py:21"),
        ("15.7 us", "examples/mlp.py:19"),
        ("4.49 us", "examples/mlp.py:20"),
    ]
    assert cells(view, 13) == ["", "latency", "launch", "launch"]


def test_one_line_says_what_was_recorded_and_one_what_to_change_first(view):
    document = make_document(mlp().analysis)
    found = document.recommendations.findings[0]
    lines = view.locator(".heading p").all_inner_texts()
    assert lines == [
        f"first/rank0 \u00b7 {document.heading}",
        f"Top recommendation: {found.saving} {found.summary}",
    ]


def test_the_table_comes_first_with_forward_and_backward_in_sight_at_900_px(within, browser):
    browser[0].set_viewport_size({"width": 900, "height": 800})
    table = within.locator(".content").bounding_box()
    assert table["y"] < 300
    for title in ("forward", "backward"):
        box = within.locator(".content th", has_text=title).bounding_box()
        assert box["x"] + box["width"] < table["x"] + table["width"] < 900
    assert within.locator(".summary").bounding_box()["y"] > table["y"] + table["height"]
    browser[0].set_viewport_size({"width": 1400, "height": 900})


def test_the_breakdown_stands_below_the_table(view):
    assert view.locator(".summary h1").all_inner_texts() == ["first/rank0"]
    rows = view.locator(".summary table tr").all_inner_texts()
    assert "compiled: attributed to source\t43.9 us\t1.8%" in rows


def test_the_recommendations_stand_above_the_breakdown(view):
    first = make_document(mlp().analysis).recommendations
    titles = view.locator(".summary h2").all_inner_texts()
    assert titles == [first.title, "Step time breakdown"]
    item = view.locator(".summary details").first
    found = first.findings[0]
    assert item.inner_text() == f"{found.saving} {found.summary}"
    item.locator("summary").click()
    assert item.inner_text().split("\n\n") == [
        f"{found.saving} {found.summary}",
        found.evidence,
        f"Try: {found.remedy}",
    ]


def test_a_click_on_a_heading_sorts_and_another_turns_it_round(view):
    by_line = view.get_by_role("button", name="line", exact=True)
    by_line.click()
    lines = ["(no source line)", *(f"examples/mlp.py:{line}" for line in (19, 20, 21))]
    assert cells(view, 4) == lines
    by_line.click()
    assert cells(view, 4) == lines[::-1]
    view.get_by_role("button", name="backward").click()
    assert cells(view, 7) == ["13.1 us", "8.89 us", "3.18 us", "2.37 us"]


def test_a_search_leaves_the_rows_that_hold_every_word(view):
    view.get_by_label("search").fill("MLP.py gelu")
    assert cells(view, 4) == ["examples/mlp.py:19"]
    view.get_by_label("search").fill("no such line")
    assert cells(view, 4) == []


def test_a_phase_alone_is_measured_and_the_rows_without_it_leave(view):
    view.get_by_label("phase").select_option("recompute")
    assert list(zip(cells(view, 1), cells(view, 4), strict=True)) == [
        ("1.95 us", "examples/mlp.py:19"),
        ("732 ns", "examples/mlp.py:20"),
    ]


def test_a_click_on_a_line_shows_the_launches_it_is_fused_into_and_what_else_is_in_them(view):
    view.locator(".content tbody tr", has_text="mlp.py:20").click()
    texts = view.locator(".detail summary").all_inner_texts()
    assert [text.partition(" ")[2] for text in texts] == [
        "1.94 us per step, 4 launches",
        "1.49 us of 2.98 us per step, 2 launches",
        "573 ns of 1.65 us per step, 2 launches",
        "489 ns of 1.65 us per step, 2 launches",
    ]
    view.locator(".detail summary").nth(1).click()
    rows = view.locator(".detail details").nth(1).locator("tbody tr")
    rows.first.wait_for()
    found = [
        (row.locator("td").nth(2).inner_text(), row.locator("td").nth(4).inner_text().split()[0])
        for row in rows.all()
    ]
    assert found == [
        ("aten.gelu.default", "examples/mlp.py:19"),
        ("aten.native_layer_norm_backward.default", "examples/mlp.py:20"),
        ("aten.native_layer_norm.default", "examples/mlp.py:20"),
    ]
    assert [row.get_attribute("class") for row in rows.all()] == ["", "own", "own"]


def test_from_a_line_to_its_source_and_from_a_line_of_the_source_to_its_launches(view):
    view.locator(".content tbody tr", has_text="mlp.py:19").click()
    view.get_by_role("button", name="show in source").click()
    assert heads(view)[:3] == ["forward", "backward", "recompute"]
    chosen = view.locator('.source tr[aria-selected="true"] td').all_inner_texts()
    assert chosen == ["4.90 us", "8.89 us", "1.95 us", "19", "        h = F.gelu(self.up(x))"]
    view.locator(".source tr", has_text="self.norm(h)").click()
    assert view.locator(".detail h2").inner_text().startswith("examples/mlp.py:20")


def test_the_modules_count_those_below_them(view):
    turn_to(view, "Modules")
    view.get_by_label("search").fill("model itself")
    assert cells(view, heads(view).index("class") + 1) == ["MLP"]
    assert "with submodules" in heads(view)


@pytest.mark.parametrize(("title", "rows"), [("Kernels", 25), ("Phases", 5)])
def test_each_table_has_all_its_rows(view, title, rows):
    turn_to(view, title)
    assert len(cells(view, 1)) == rows


def test_two_runs_stand_side_by_side_with_the_change(view):
    view.get_by_label("second/rank0").check()
    view.locator(".summary").nth(1).wait_for()
    assert heads(view) == [
        "first/rank0", "second/rank0", "change in second/rank0", "line", "code",
    ]  # fmt: skip
    assert cells(view, 1) == cells(view, 2)
    assert cells(view, 3) == ["", "", "", ""]
    turn_to(view, "Source")
    assert heads(view)[:2] == ["first/rank0", "second/rank0"]


def test_a_name_like_markup_stays_text(within, browser):
    within.get_by_label("second/rank0").check()
    within.get_by_label("first/rank0", exact=True).uncheck()
    turn_to(within, "Modules")
    within.locator(".content tbody tr", has_text="onerror").click()
    assert EVIL in within.locator(".detail h2").inner_text()
    assert within.locator("img").count() == 0
    assert browser[0].title() == "TensorBoard"


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("cut", "is cut short; reload when it is written, or export the session again"),
        ("foreign", "is no attribution of profiler-ext"),
        (EVIL, "is no attribution of profiler-ext"),
    ],
)
def test_a_file_that_cannot_be_shown_is_one_message_next_to_the_others(view, run, message):
    view.get_by_label(f"{run}/rank0").check()
    shown = view.get_by_role("status")
    assert message in shown.inner_text()
    assert shown.inner_text().startswith(f"{run}/rank0: rank0.attribution.json.gz ")
    assert cells(view, 4)[1] == "examples/mlp.py:21"


def test_the_runs_can_be_reloaded(view):
    view.get_by_role("button", name="reload runs").click()
    assert cells(view, 4)[1] == "examples/mlp.py:21"


def test_it_follows_tensorboard_from_light_to_dark(within, browser):
    paper = "getComputedStyle(document.body).backgroundColor"
    frame = next(each for each in browser[0].frames if "plugin_entry" in each.url)
    assert frame.evaluate(paper) == "rgb(255, 255, 255)"
    browser[0].evaluate("document.body.classList.add('dark-mode')")
    frame.wait_for_function(f"{paper} === 'rgb(22, 24, 29)'")
