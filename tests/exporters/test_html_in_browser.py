"""In Chromium the report sorts, searches, opens, follows links, prints, and runs no name."""

from __future__ import annotations

from profiler_ext.exporters.html import html_text
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.recording import Recording
from tests import frames as tables
from tests.analyses import gpu_step
from tests.exporters.estimated import estimated
from tests.exporters.opened import browser, many, page, report, searched, texts, written
from tests.exporters.reported import EVIL, SOURCE, evil, two_ranks
from tests.frames import records
from tests.gpu_model import MODEL
from tests.handmade import launches, shares, trace

FOUND = "4 hits: 1 line with time, 2 kernels, 1 line of generated code"
MODULES = [
    *("▾(the model itself)", "140 us"),
    *("▾mlp MLPown 33.3 us", "140 us"),
    *("up Linearlaunches", "100 us"),
    *("down Linearlaunches", "6.67 us"),
    *("(no module)launches", "94.5 us"),
]
__all__ = ["browser", "page", "report"]
KERNEL_NAMES = "#kernels .kernel"


def test_every_kernel_has_its_time(page):
    rows = records(tables.by_kernel(gpu_step()))
    found = page.evaluate("kernels.map(each => [each.name, each.kind, each.total, each.launches])")
    expected = [[row[k] for k in ("kernel", "kind", "duration_ns", "launches")] for row in rows]
    assert sorted(found) == sorted(expected)


def test_every_line_has_the_time_of_each_phase(page):
    rows = [row for row in records(tables.by_line(gpu_step())) if row["file"]]
    found = page.evaluate(
        "lines.filter(each => each.total).map(each => [each.path, each.whole, ...each.phases])"
    )
    phases = page.evaluate("PHASES")
    expected = [
        [f"{row['file']}:{row['line']}", row["inclusive_ns"], *(row[phase] for phase in phases)]
        for row in rows
    ]
    assert sorted(found) == sorted(expected)


def test_every_module_tells_its_eager_part(page):
    found = page.evaluate("modules.map(each => [each.path, each.total, each.eager])")
    whole, eager = (
        {row["module"]: row["duration_ns"] for row in records(table) if row["module"] is not None}
        for table in (tables.by_module(gpu_step()), tables.by_module(gpu_step(), scope="eager"))
    )
    assert {path: (total, part) for path, total, part in found} == {
        path: (time, eager.get(path, 0)) for path, time in whole.items()
    }
    assert texts(page, "#lines th button").count("eager") == 1


def test_a_row_of_the_tree_says_what_all_below_it_could_save(browser, tmp_path):
    page, troubles = browser
    one = estimated({(0, 0): ("50000000", "10000000000"), (0, 1): ("2000001", "300")})
    page.goto(written(tmp_path, html_text([one])))
    heads = [text.strip() for text in page.locator(".tree th").all_inner_texts()]
    saved = page.locator(f".tree tr > td:nth-child({heads.index('max saving') + 1})")
    assert saved.all_inner_texts() == ["37.0 us"] * 3 + ["", ""]
    bounds = page.locator(f".tree tr > td:nth-child({heads.index('roofline') + 1})")
    assert bounds.all_text_contents() == ["", "", "21% memory", "launch", ""]
    assert troubles == []


def kernel_names(page):
    return page.eval_on_selector_all(KERNEL_NAMES, "cells => cells.map(cell => cell.title)")


def test_a_click_on_a_heading_sorts(page):
    largest_first = [row["kernel"] for row in records(tables.by_kernel(gpu_step()))]
    assert kernel_names(page) == largest_first
    page.click("#kernels th button:text-is('kernel')")
    assert kernel_names(page) == sorted(largest_first, key=str.lower)
    assert page.get_attribute("#kernels th:has(button:text-is('kernel'))", "aria-sort")
    page.click("#kernels th button:text-is('kernel')")
    assert kernel_names(page) == sorted(largest_first, key=str.lower, reverse=True)


def test_the_search_narrows_every_table_and_counts_what_it_finds(page):
    searched(page, "gelu")
    assert kernel_names(page) == [
        "triton_red_fused_gelu_backward_sum_0",
        "triton_poi_fused__to_copy_gelu_0",
    ]
    assert page.inner_text("#status") == FOUND
    assert page.locator('.flame rect[fill="var(--found)"]').count() == 6
    assert page.evaluate("CSS.highlights.get('found').size") > 10
    assert len(texts(page, "#hits li")) == 4
    searched(page, "")
    assert page.inner_text("#status") == "" and not page.is_visible("#hits")
    assert page.evaluate("CSS.highlights.has('found')") is False


def test_one_goes_from_hit_to_hit_and_back_and_what_is_shut_opens(page):
    searched(page, "gelu")
    page.press("#search", "Enter")
    assert page.inner_text("#status") == f"1 of {FOUND}"
    assert page.get_attribute(".target", "data-number") == "13"
    for _ in range(2):
        page.press("#search", "Enter")
    assert page.locator("#kernels tr.target + tr.detail").count() == 1
    page.click("#next")
    assert page.locator(".target[data-code]").inner_text() == "def gelu(p): pass  # </pre>"
    page.press("#search", "Shift+Enter")
    assert page.inner_text("#status") == f"3 of {FOUND}"
    page.click("#hits button >> nth=1")
    assert page.inner_text("#status") == f"2 of {FOUND}"
    page.press("#search", "Escape")
    assert page.inner_text("#status") == ""


def test_a_source_line_without_time_is_found(page):
    page.check("#source input")
    searched(page, "# model")
    page.press("#search", "Enter")
    assert page.inner_text("#status") == "1 of 10 hits: 10 source lines"
    assert page.inner_text(".source .target code") == "# model"


def test_modules_are_a_tree_with_inclusive_times(page):
    cells = page.locator("#modules tbody td:nth-child(-n+2)")
    assert cells.all_text_contents() == MODULES
    page.click("#modules .twist >> nth=1")
    assert cells.all_text_contents() == [
        *MODULES[:2],
        "▸mlp MLPown 33.3 us",
        "140 us",
        *MODULES[8:],
    ]
    assert page.get_attribute("#modules button.twist >> nth=1", "aria-expanded") == "false"


def test_a_module_opens_to_the_launches_of_its_own(page):
    page.click("#modules .own:text('launches')")
    assert page.locator("#modules .detail .launches").count() == 1


def test_a_click_on_a_source_line_shows_the_launches_it_is_fused_into(page):
    page.click('.source .row[data-line$="model.py:13"] .twist')
    assert texts(page, ".source .detail tbody tr td:not(.name, .fused)") == [
        *("20.0 us", "30.0 us", "1"),
        *("13.3 us", "20.0 us", "1"),
    ]
    others = texts(page, ".source .detail tbody td.fused")
    assert others[1] == "13.3 us aten.gelu.default forward\n" + (
        "6.67 us prims.convert_element_type forward model.py:14 return self.down(h.to(x.dtype))"
    )


def test_source_is_whole_where_it_still_stands(page):
    code = page.locator(".source .row:not(.head) code").all_text_contents()
    assert code == SOURCE.removesuffix("\n").split("\n")


def test_source_far_from_any_time_can_be_left_out(page):
    page.check("#source input")
    assert (
        page.locator(".source .row:not(.head) code").all_text_contents()
        == (SOURCE.removesuffix("\n").split("\n")[7:])
    )
    page.uncheck("#source input")
    assert page.locator(".source .row:not(.head)").count() == 14


def test_source_that_is_not_there_is_reported_so(page):
    page.select_option("#source select", label="train.py (0 ns)")
    assert "the file is not here, or under no --root" in page.inner_text("#source")
    assert texts(page, ".source .row:not(.head) code") == ["loss = model(x, y)"]


def test_a_kernel_opens_to_its_fused_ops_and_its_code_next_to_their_lines(page, report):
    page.goto(f"{report}#kernel=triton_poi_fused__to_copy_gelu_0")
    assert texts(page, "#kernels .fused-ops tbody td:nth-child(1)") == [
        "aten.gelu.default",
        "prims.convert_element_type",
    ]
    assert texts(page, "#kernels .beside tbody .code") == [
        "h = F.gelu(h)",
        "return self.down(h.to(x.dtype))",
    ]
    assert page.inner_text("#kernels .beside pre") == ("@triton.jit\ndef gelu(p): pass  # </pre>")


def test_code_that_is_not_there_is_reported_so(page, report):
    page.goto(f"{report}#kernel=triton_red_fused_gelu_backward_sum_0")
    assert "was not there when this report was made" in page.inner_text("#kernels .beside")


def test_a_link_to_a_line_opens_it(page, report):
    page.goto(f"{report}#line=model.py:12")
    assert page.get_attribute(".target", "data-line") == f"{MODEL}:12"
    page.wait_for_function("document.querySelector('.target').getBoundingClientRect().top > 0")
    assert texts(page, ".source .detail tbody td.name a") == [
        "extern_kernels.addmm",
        "extern_kernels.mm",
        "triton_red_fused_gelu_backward_sum_0",
    ]


def test_a_link_that_leads_nowhere_says_so(page, report):
    page.goto(f"{report}#kernel=gone")
    assert page.inner_text("#status") == "this report has no kernel gone"


def test_a_click_on_a_frame_zooms_both_sides(page):
    for flame in (0, 1):
        assert page.locator(".flame").nth(flame).locator("g.fade").count() == 0
    page.locator(".flame").nth(0).locator("g[name=mlp]").click()
    for flame in (0, 1):
        assert page.locator(".flame").nth(flame).locator("g.fade").count() == 1


def test_what_the_icicles_leave_out_is_reported(page):
    assert page.inner_text("#left-out") == "not in it: optimizer 60.5 us, other 10.0 us"
    assert texts(page, ".flame ~ p, .sides h3") == [
        *("forward: 70.0 us", "click a frame to zoom; click the top to go back"),
        *("backward: 90.0 us", "click a frame to zoom; click the top to go back"),
        *("gradient accumulation: 4.00 us", "click a frame to zoom; click the top to go back"),
    ]


def test_a_search_is_a_link(page):
    searched(page, "gelu")
    link = page.evaluate("location.href")
    page.goto("about:blank")
    page.goto(link)
    assert page.inner_text("#status") == FOUND


def test_graphs_have_their_cache_state(page):
    assert [text.split("\n")[0] for text in texts(page, "#graphs tbody td:nth-child(7)")] == [
        "miss",
        "miss",
    ]


def test_it_prints(page, tmp_path):
    page.emulate_media(media="print", color_scheme="dark")
    white = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.set_viewport_size({"width": 800, "height": 1100})  # A4
    assert page.evaluate("document.documentElement.scrollWidth") == 800
    page.set_viewport_size({"width": 1400, "height": 900})
    page.pdf(path=tmp_path / "report.pdf")
    page.emulate_media(media="screen")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="light")
    assert (white, dark) == ("rgb(251, 251, 250)", "rgb(22, 24, 27)")


def test_no_name_runs_or_becomes_an_element(browser, tmp_path):
    page, troubles = browser
    page.goto(written(tmp_path, html_text(two_ranks(evil()))))
    page.wait_for_selector("#kernels tbody tr")
    page.select_option("#rank", "1")
    page.eval_on_selector_all(
        "#kernels .twist, .source .twist, #modules .own", "all => all.forEach(each => each.click())"
    )
    searched(page, "onerror")
    for _ in range(4):
        page.press("#search", "Enter")
    assert page.locator("img").count() == 0
    assert EVIL in page.inner_text("#kernels")
    assert troubles == []


def test_twenty_thousand_kernels_open(browser, tmp_path):
    page, troubles = browser
    page.goto(written(tmp_path, html_text([many(20_000)])))
    assert page.locator("#kernels tbody tr").count() == 15
    assert (
        page.inner_text("#kernels .pager").replace("\n", " ")
        == "previous 1 to 15 of 2,001 rows next"
    )
    assert kernel_names(page)[0] == "(18,000 smaller kernels)"
    page.click("#kernels .pager button:text-is('next')")
    assert "16 to 30 of" in page.inner_text("#kernels .pager")
    assert page.locator(".flame g").count() < 2_000
    assert troubles == []


def test_a_session_without_steps_is_an_empty_page_without_errors(browser, tmp_path):
    page, troubles = browser
    recording = Recording(trace=trace(()))
    empty = Analysis(recording, (), launches((), ()), (), shares(()), notes=("capture was off",))
    page.goto(written(tmp_path, html_text([empty])))
    searched(page, "anything")
    assert texts(page, "section:visible") == [
        "capture was off",
        "Step time breakdown\n\nNo step was profiled, so there is nothing to sum.",
    ]
    assert troubles == []
