"""The views of torch-tb-profiler on the exported folder: their data, and the page in Chromium.

The page loads Google Charts from their maker's server. The tests have no network, so a stand-in
that draws plain tables is served in its place; what that page needs of the network stays its own.
"""

from __future__ import annotations

import gzip
import json
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.browser import open_page
from tests.patience import patience_s

pytestmark = pytest.mark.whole

CHARTS = "https://www.gstatic.com/charts/loader.js"
STAND_IN = Path(__file__).with_name("charts_stub.js")
ADDMM = "[forward] aten.addmm @ mlp.py:21"


@pytest.fixture(scope="module")
def loaded(server) -> str:
    """Return the server when the plugin has read the folder, which it does in the background."""
    for _ in range(patience_s(300)):
        runs = asked(server, "runs")
        if runs["runs"] and not runs["loading"]:
            return server
        time.sleep(0.1)
    raise AssertionError(f"torch-tb-profiler still reads the folder: {runs}")


def asked(server: str, route: str, **arguments: str):
    """Return the JSON that the plugin answers."""
    query = urllib.parse.urlencode(arguments)
    with urllib.request.urlopen(f"{server}data/plugin/pytorch_profiler/{route}?{query}") as answer:
        content = answer.read()
    return json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)


def of_first(server: str, route: str, **arguments: str):
    return asked(server, route, run="first", worker="rank0", span="default", **arguments)


def kernel_rows(server: str) -> list[dict]:
    table = of_first(server, "kernel/table", group_by="KernelNameAndOpName")["data"]
    names = [column["name"] for column in table["columns"]]
    return [dict(zip(names, row, strict=True)) for row in table["rows"]]


def modules(stats) -> dict[str, tuple[int, float]]:
    found = {}
    for stat in stats:
        found[stat["name"]] = (stat["occurences"], stat["device_duration"])
        found |= modules(stat["children"])
    return found


def test_it_finds_the_runs_and_nothing_of_ours(loaded):
    assert asked(loaded, "runs") == {"runs": ["first", "second"], "loading": False}
    assert asked(loaded, "workers", run="first", view="Kernel") == ["rank0"]
    views = asked(loaded, "views", run="first")
    assert views == ["Overview", "Operator", "Kernel", "Trace", "Module"]


def test_the_kernel_view_has_the_source_of_every_launch_of_a_compiled_graph(loaded):
    rows = kernel_rows(loaded)
    triton = [row["Operator"] for row in rows if row["Name"].startswith("triton_")]
    assert len(triton) > 4
    assert [operator for operator in triton if " @ mlp.py:" not in operator] == []
    assert {row["Calls"] for row in rows if row["Operator"] == ADDMM} == {2}


def test_the_operator_view_has_the_device_time_and_the_lines(loaded):
    rows = of_first(loaded, "operation/table", group_by="Operation")["data"]
    found = {row["name"]: (row["calls"], row["device_self_duration"]) for row in rows}
    assert found[ADDMM] == (4, 19)
    stacks = of_first(loaded, "operation/stack", group_by="Operation", op_name=ADDMM)["data"]
    assert {row["call_stack"].split(";")[0] for row in stacks} == {"examples/mlp.py(21): forward"}


def test_the_module_view_has_forward_and_backward(loaded):
    found = modules(of_first(loaded, "module")["data"])
    assert {"(model)", "up", "down", "(model).backward", "up.backward", "down.backward"} <= set(
        found
    )
    assert found["down"][1] > 0
    assert found["down.backward"][1] > 0


def test_the_kernel_view_is_drawn_in_a_browser(loaded, tmp_path):
    with open_page(loaded, viewport={"width": 1700, "height": 1100}) as (page, troubles):
        page.route(CHARTS, lambda route: route.fulfill(path=STAND_IN))
        page.goto(f"{loaded}#pytorch_profiler")
        frame = page.frame_locator("iframe[src*=pytorch_profiler]")
        chosen(frame, "Overview", "GPU Kernel")
        chosen(frame, "Kernel Name", "Kernel Properties + Op Name")
        frame.get_by_role("cell", name=ADDMM).first.wait_for()
        page.screenshot(path=tmp_path / "kernels.png")
    assert [each for each in troubles if each.startswith("error")] == []
    assert {each for each in troubles if each.startswith("http")} == {CHARTS}


def chosen(frame, old: str, new: str) -> None:
    """Choose another entry of a list that shows the old one."""
    frame.get_by_text(old, exact=True).first.click()
    frame.get_by_role("option", name=new, exact=True).click()
