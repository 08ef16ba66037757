"""axe-core finds nothing wrong with the pages, light and dark, with their rows opened."""

from __future__ import annotations

import pytest

from profiler_ext import diff, load
from profiler_ext.exporters.html import html_text
from profiler_ext.exporters.html.comparison import comparison_page
from tests.attribution.recordings import FIXTURES
from tests.browser import open_page
from tests.cases.neutral import SUFFIX
from tests.exporters.opened import written

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
OPEN = """for (const table of ["#lines", "#kernels", "#modules", "#memory", ".source"]) {
  document.querySelectorAll(`${table} [aria-expanded=false]`)[0]?.click();
}"""


def recorded(name):
    return FIXTURES / f"{name}{SUFFIX}"


@pytest.fixture(scope="module")
def browser():
    with open_page(viewport={"width": 1100, "height": 900}) as (page, troubles):
        yield page, troubles


def violations(page, part="body"):
    """What breaks a rule of axe's; of the dark page, which has other colors only, its contrasts."""
    found = []
    for scheme, rules in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
        page.emulate_media(color_scheme=scheme)
        found += axe.Axe().run(page, part, rules).response["violations"]
    return [(each["id"], each["impact"], each["nodes"][0]["html"]) for each in found]


def test_a_color_without_contrast_is_a_violation_light_and_dark(browser, tmp_path):
    page, _ = browser
    style = "p { background: light-dark(#fff, #000); color: light-dark(#000, #222) }"
    text = (
        '<!doctype html><html lang="en"><meta name="color-scheme" content="light dark">'
        f"<title>t</title><style>{style}</style><main><h1>h</h1><p>text</p></main></html>"
    )
    page.goto(written(tmp_path, text))
    assert [each[0] for each in violations(page)] == ["color-contrast"]
    page.add_style_tag(content="p { color: light-dark(#eee, #fff) }")
    assert [each[0] for each in violations(page)] == ["color-contrast"]
    page.add_style_tag(content="p { color: light-dark(#000, #fff) }")
    assert violations(page) == []


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("findings/pageable_copy", "body"),
        pytest.param("worked/gpt_compiled", "body", marks=pytest.mark.whole),
        pytest.param("findings/unlike_siblings", "body", marks=pytest.mark.whole),
        ("memory/gpt_graphs", "#memory"),
    ],
)
def test_a_report_has_no_violation(browser, tmp_path, name, part):
    page, troubles = browser
    page.goto(written(tmp_path, html_text([load(recorded(name)).analysis])))
    page.evaluate(OPEN)
    assert violations(page, part) == []
    assert troubles == []


@pytest.mark.whole
def test_a_comparison_has_no_violation(browser, tmp_path):
    page, troubles = browser
    changed = diff(recorded("worked/gpt_eager"), recorded("worked/gpt_compiled"))
    page.goto(written(tmp_path, comparison_page(changed.comparison)))
    assert violations(page) == []
    assert troubles == []
