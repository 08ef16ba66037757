"""The report that Chromium opens in tests, and how one is written for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.exporters.html import html_text
from profiler_ext.records.analysis import Shares
from tests.analyses import GPU_MARKS, GPU_PLACES, gpu_step
from tests.browser import open_page
from tests.exporters.reported import SOURCE
from tests.gpu_model import MODEL
from tests.handmade import Row, launches

GENERATED = (
    "triton_poi_fused__to_copy_gelu_0 = async_compile.triton("
    "'triton_poi_fused__to_copy_gelu_0', '''\n@triton.jit\ndef gelu(p): pass  # </pre>\n''')\n"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of the hand-made step, with its sources and one generated module there."""
    graph = gpu_step().recording.graphs[0]
    text = html_text([gpu_step()], {MODEL: SOURCE, graph.output_module: GENERATED})
    return written(tmp_path_factory.mktemp("report"), text)


def written(folder, text):
    path = folder / "report.html"
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser(report):
    with open_page(viewport={"width": 1400, "height": 900}) as (page, troubles):
        yield page, troubles


@pytest.fixture
def page(browser, report):
    page, troubles = browser
    page.goto("about:blank")
    troubles.clear()
    page.goto(report)
    yield page
    assert troubles == []


def texts(page, selector):
    return [text.strip() for text in page.locator(selector).all_inner_texts()]


def searched(page, term):
    """Type a term and wait until the page shows what it finds."""
    page.fill("#search", term)
    page.wait_for_function(
        "term => searching.term === term && searching.isSettled", arg=term.strip().lower()
    )


def many(count):
    """A step of so many launches, each of its own kernel and with two parts."""
    row = Row(25, ((2, 13_334), (3, 6_667)), "triton", "forward", "line", "", 3)
    columns = launches(GPU_MARKS, (row,))
    repeated = {
        name: getattr(columns, name)[np.zeros(count, np.int64)]
        for name in ("event", "step", "device", "stream", "start_ns", "duration_ns", "graph")
    }
    codes = np.zeros(count, np.int32)
    interned = {
        name: replace(getattr(columns, name), codes=codes)
        for name in ("name", "kind", "scope", "phase", "level", "evidence", "gap")
    }
    names = tuple(f"kernel_{number}" for number in range(count))
    kernel = replace(columns.kernel, codes=np.arange(count, dtype=np.int32), strings=names)
    others = {
        name: getattr(columns, name)[np.zeros(count, np.int64)]
        for name in ("call_site", "op_event", "correlation", "external_id")
    }
    return replace(
        gpu_step(),
        places=GPU_PLACES,
        launches=replace(columns, kernel=kernel, **repeated, **interned, **others),
        shares=Shares(
            np.repeat(np.arange(count), 2),
            np.tile(np.array([2, 3], np.int32), count),
            np.tile(np.array([13_334, 6_667]), count),
        ),
    )
