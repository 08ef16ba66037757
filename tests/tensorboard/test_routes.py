"""The routes, asked through TensorBoard's own application."""

from __future__ import annotations

import gzip
import importlib
import json
import re
import tomllib
from pathlib import Path

import pytest

from profiler_ext.exporters.tensorboard_plugin.document import SUFFIX, encoded
from profiler_ext.exporters.tensorboard_plugin.writing import make_document
from profiler_ext.exporters.views.formatting import scheme_style_sheet
from tests.tensorboard.sessions import ROOT, mlp

pytest.importorskip("tensorboard")
# TensorBoard's own copy of html5lib.
pytestmark = pytest.mark.filterwarnings("ignore:html5lib's sanitizer is deprecated")
BASE = "/data/plugin/profiler_ext"
STATIC = ROOT / "exporters" / "tensorboard_plugin" / "static"
SHARED = ROOT / "exporters" / "html" / "static" / "shared"
FILES = {path.name: path for path in STATIC.iterdir()} | {
    f"shared/{path.name}": path for path in SHARED.iterdir()
}


def client(log_dir: Path | str):
    """Return a client of TensorBoard's application with our plugin alone."""
    from tensorboard.backend.application import TensorBoardWSGI
    from tensorboard.plugins.base_plugin import TBContext
    from werkzeug.test import Client

    from profiler_ext.exporters.tensorboard_plugin.plugin import AttributionPlugin

    return Client(TensorBoardWSGI([AttributionPlugin(TBContext(logdir=str(log_dir)))]))


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    mlp().export(folder / "small")
    (folder / f"cut{SUFFIX}").write_bytes(encoded(make_document(mlp().analysis))[:500])
    (folder.parent / f"outside{SUFFIX}").write_bytes(encoded(make_document(mlp().analysis)))
    return folder


def listed(folder: Path | str) -> dict:
    return client(folder).get("/data/plugins_listing").get_json()["profiler_ext"]


def test_it_is_active_as_soon_as_the_folder_holds_a_run(tmp_path):
    assert listed(tmp_path)["enabled"] is False
    (tmp_path / f"rank0{SUFFIX}").touch()
    assert listed(tmp_path) == {
        "disable_reload": True,
        "enabled": True,
        "loading_mechanism": {"module_path": f"{BASE}/index.js", "type": "IFRAME"},
        "remove_dom": False,
        "tab_name": "Attribution",
    }


@pytest.mark.parametrize("folder", ["", "/no/such/folder"])
def test_it_is_not_active_without_a_folder(folder):
    assert listed(folder)["enabled"] is False


def test_the_runs_are_listed(log_dir):
    answer = client(log_dir).get(f"{BASE}/runs")
    assert answer.mimetype == "application/json"
    assert answer.get_json() == {"runs": ["cut", "small/rank0"], "error": None}


def test_without_a_folder_the_list_says_why_it_is_empty():
    assert client("").get(f"{BASE}/runs").get_json() == {
        "runs": [],
        "error": "TensorBoard was started without --logdir; give the folder that was exported to",
    }


def test_the_data_of_a_run_is_what_was_exported(log_dir):
    answer = client(log_dir).get(f"{BASE}/data?run=small/rank0")
    assert (answer.status_code, answer.mimetype) == (200, "application/json")
    expected = gzip.decompress(encoded(make_document(mlp().analysis)))
    assert answer.get_json() == json.loads(expected)


def test_the_data_is_compressed_for_a_browser(log_dir):
    headers = {"Accept-Encoding": "gzip, deflate, br"}
    answer = client(log_dir).get(f"{BASE}/data?run=small/rank0", headers=headers)
    assert answer.headers["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(answer.data))["steps"] == 2


def test_a_run_that_is_cut_short_says_so(log_dir):
    answer = client(log_dir).get(f"{BASE}/data?run=cut")
    assert (answer.status_code, answer.get_json()) == (
        422,
        {
            "error": f"cut{SUFFIX} is cut short; reload when it is written, "
            "or export the session again"
        },
    )


@pytest.mark.parametrize(
    "run",
    [
        "",
        "gone",
        "../outside",
        "%2e%2e/outside",
        "small/../../outside",
        "small%2f..%2f..%2foutside",
        "/etc/passwd",
        "small/rank0%00",
        "small//rank0",
    ],
)
def test_no_file_is_read_but_those_that_were_found(log_dir, run):
    answer = client(log_dir).get(f"{BASE}/data?run={run}")
    assert (answer.status_code, answer.get_json()) == (
        404,
        {"error": "this run is no longer in the log folder; reload the runs"},
    )


@pytest.mark.parametrize("path", ["../plugin.py", "%2e%2e/plugin.py", "..%2fplugin.py", "static/"])
def test_no_other_file_of_the_package_is_served(log_dir, path):
    assert client(log_dir).get(f"{BASE}/{path}").status_code == 404


@pytest.mark.parametrize("name", sorted(FILES))
def test_each_file_of_the_page_is_served_as_what_it_is(log_dir, name):
    path = FILES[name]
    answer = client(log_dir).get(f"{BASE}/{name}")
    kind = {".js": "text/javascript", ".css": "text/css"}[path.suffix]
    assert (answer.status_code, answer.mimetype, answer.data) == (200, kind, path.read_bytes())
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_the_colours_of_phases_are_those_of_every_output(log_dir):
    answer = client(log_dir).get(f"{BASE}/phases.css")
    assert (answer.status_code, answer.mimetype) == (200, "text/css")
    assert answer.text == scheme_style_sheet()


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_page_names_no_other_machine_and_makes_no_markup(name):
    text = FILES[name].read_text()
    assert re.findall(r"//\w[\w.-]*\.\w+|innerHTML|outerHTML|insertAdjacentHTML|eval\(", text) == []
    imported = re.findall(r'(?:from|import) "\./([^"]*)"', text)
    folder = f"{Path(name).parent}/".removeprefix("./")
    assert [each for each in imported if f"{folder}{each}" not in FILES] == []


def test_tensorboard_s_own_policy_holds_for_the_page(log_dir):
    answer = client(log_dir).get("/data/plugin_entry.html?name=profiler_ext")
    policy = answer.headers["Content-Security-Policy"]
    assert 'import("./index.js")' in answer.text
    assert "default-src 'self'" in policy
    assert "connect-src 'self'" in policy


def test_the_installed_package_announces_the_plugin():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (where,) = project["entry-points"]["tensorboard_plugins"].values()
    module, _, name = where.partition(":")
    assert getattr(importlib.import_module(module), name).plugin_name == "profiler_ext"
