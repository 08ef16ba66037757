"""In a narrow window the report shows what a wide one does, and nothing of it is cut."""

from __future__ import annotations

from profiler_ext.exporters.html import html_text
from tests.exporters.estimated import estimated
from tests.exporters.opened import browser, report, written

__all__ = ["browser", "report"]


def test_a_window_of_900_pixels_shows_what_could_be_saved(browser, tmp_path):
    page, troubles = browser
    page.set_viewport_size({"width": 900, "height": 900})
    page.goto(written(tmp_path, html_text([estimated({(0, 0): ("50000000", "10000000000")})])))
    for table in ("#kernels", "#lines", "#modules"):
        assert page.locator(f"{table} th", has_text="max saving").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 900
    page.set_viewport_size({"width": 1400, "height": 900})
    assert troubles == []
