"""The page needs no network, and no name in it becomes markup or a script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from profiler_ext import load
from profiler_ext.errors import OutputError
from profiler_ext.exporters.html import export_html, html_text
from profiler_ext.exporters.html.data import files_shown, report_data
from profiler_ext.exporters.html.graphs import MAX_CODE_CHARS, Codes
from profiler_ext.exporters.html.sites import Pool, Site, sites_of
from profiler_ext.exporters.html.template import json_text
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.recording import Recording
from tests import frames as tables
from tests.analyses import GPU_MARKS, GPU_PLACES, GPU_ROWS, cpu_step, gpu_step
from tests.attribution.recordings import FIXTURES
from tests.cases.neutral import SUFFIX
from tests.exporters.estimated import estimated
from tests.exporters.reported import EVIL, SOURCE, Page, evil, two_ranks
from tests.frames import records
from tests.gpu_model import MODEL
from tests.handmade import launches, shares, trace


def scripts(text):
    return re.findall(r"<script>(.*?)</script>", text, re.DOTALL)


def test_the_step_time_breakdown_adds_up_to_the_wall_time():
    assert [tuple(row) for row in Page(html_text([gpu_step()])).tables[0]] == [
        ("what the device did", "time", "% of step", "part of the step"),
        ("compiled: attributed to source", "130 us", "13.0%", ""),
        ("compiled: library calls with an open boundary", "20.0 us", "2.0%", ""),
        ("eager: attributed to ATen ops only", "74.5 us", "7.5%", ""),
        ("device idle", "775 us", "77.5%", ""),
        ("launch latency", "278 us", "27.8%", ""),
        ("end of the step", "240 us", "24.0%", ""),
        ("CPU launch overhead", "142 us", "14.2%", ""),
        ("Python between ops", "66.0 us", "6.6%", ""),
        ("inter-kernel gap", "50.0 us", "5.0%", ""),
        ("total", "1.00 ms", "100.0%", ""),
    ]


def test_a_step_has_a_bar_by_phase_as_long_as_its_wall_time():
    text = html_text([cpu_step()])
    assert "step 0: 500 us, device busy 42.0%" in text
    assert (
        '<span class="forward" style="width:32.000%" title="forward 160 us"></span>'
        '<span class="optimizer" style="width:10.000%" title="optimizer 50.0 us"></span>'
        '<span class="idle" style="width:58.000%" title="idle 290 us"></span>'
    ) in text


def test_no_name_becomes_a_tag_or_an_attribute():
    page, plain = Page(html_text([evil()])), Page(html_text([gpu_step()]))
    assert set(page.tags) == set(plain.tags)
    assert set(page.attributes) == set(plain.attributes)
    assert page.tags.count("script") == plain.tags.count("script")


def test_no_name_of_several_ranks_becomes_a_tag_or_an_attribute():
    page, plain = (Page(html_text(two_ranks(step))) for step in (evil(), gpu_step()))
    assert set(page.tags) == set(plain.tags)
    assert set(page.attributes) == set(plain.attributes)
    assert page.tags.count("script") == plain.tags.count("script")


def test_data_ends_no_script_and_is_what_it_was():
    data = {"name": EVIL, "lone": "\ud800", "line ends": "\u2028\u2029"}
    text = json_text(data)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == data


def test_the_policy_lets_only_the_pages_own_scripts_run():
    text = html_text([gpu_step()])
    found = [hashlib.sha256(script.encode()).digest() for script in scripts(text)]
    hashes = " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in found)
    assert len(found) == 15
    assert (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"style-src 'unsafe-inline'; script-src {hashes}\""
    ) in text


def test_the_page_s_own_script_is_a_classic_one_and_gives_each_name_once():
    own = scripts(html_text([gpu_step()]))[-1]
    assert own.startswith('"use strict";\n')
    assert re.findall(r"^(?:import|export)\b.*", own, re.MULTILINE) == []
    names = re.findall(r"^(?:const|let|class|function\*?) (\w+)", own, re.MULTILINE)
    assert len(names) > 100 and {name for name in names if names.count(name) > 1} == set()


def test_the_page_asks_for_nothing_from_the_network():
    text = html_text([gpu_step()])
    assert {"src", "action"}.isdisjoint(Page(text).attributes)
    assert "url(" not in text
    assert set(re.findall(r'href="(.)', text)) == {"#"}


def test_the_vendored_library_names_its_authors():
    text = html_text([gpu_step()])
    assert text.count("Copyright 2010-2026 Mike Bostock") == 13


def test_nothing_recorded_says_so_and_keeps_the_notes():
    recording = Recording(trace=trace(()))
    analysis = Analysis(recording, (), launches((), ()), (), shares(()), notes=("capture was off",))
    page = Page(html_text([analysis]))
    assert "No step was profiled, so there is nothing to sum." in page.texts
    assert "capture was off" in page.texts
    assert page.tables == []


def test_launches_that_differ_in_time_alone_are_one_site():
    first, second, other = GPU_ROWS[2], replace(GPU_ROWS[2], step=4), GPU_ROWS[1]
    outside = replace(GPU_ROWS[0], step=None)
    rows = (first, second, other, outside)
    analysis = replace(gpu_step(), launches=launches(GPU_MARKS, rows), shares=shares(rows))
    kernels, every = Pool(), np.arange(len(GPU_PLACES), dtype=np.int32)
    found = sites_of([analysis], kernels, [np.arange(2)], [every])
    assert found.sites == (Site(0, 0, 1, False, (2, 3)), Site(1, 0, 0, False, (1,)))
    assert [column.tolist() for column in found.of_launch] == [[0, 0, 1, -1]]
    assert [name for name, _, _ in kernels.values()] == [
        "triton_poi_fused__to_copy_gelu_0",
        "extern_kernels.addmm",
    ]


def test_data_names_each_thing_once():
    model = "a\nb\n" * 5 + "def forward(self, x):\n    h = self.up(x)\n    h = F.gelu(h)\n"
    model += "    return self.down(h.to(x.dtype))\n"
    module = "cpp_fused_gelu_0 = async_compile.cpp_pybind(['x'], '''\nint main\n''')\n"
    forward_module = cpu_step().recording.graphs[0].output_module
    texts = {GPU_PLACES[1].file: model, forward_module: module}
    settings = gpu_step().recording.settings
    analysis = replace(cpu_step(), recording=replace(cpu_step().recording, settings=settings))
    data, _ = report_data([analysis], texts)
    assert data["sites"] == [(0, 0, 0, 0, (1,)), (1, 0, 1, 0, (2, 3)), (2, -1, -1, 1, (10,))]
    assert data["slices"] == [
        {
            "rank": None,
            "step": None,
            "spans": 1,
            "wall": 500_000,
            "sites": [0, 1, 2],
            "launches": [1, 1, 1],
            "times": [100_000, 40_001, 20_000, 50_000],
            "outliers": [],
        }
    ]
    assert data["kernels"] == [
        ("extern_kernels.addmm", "aten::addmm", "extern", "extern_kernels.addmm", "aten::addmm"),
        ("cpp_fused_gelu_0", "cpp_fused_gelu_0", "cpp", "cpp_fused_gelu_0", ""),
        ("aten::_fused_adamw_", "aten::_fused_adamw_", "eager", "aten::_fused_adamw_", ""),
    ]
    assert data["places"][1] == (1, 0, 1, 0, -1, 1, "addmm")
    assert data["lines"][1] == (0, 12)
    assert data["modules"] == [("mlp.up", "Linear"), ("mlp", "MLP"), ("mlp.down", "Linear")]
    assert data["stacks"] == [(), (0,)]
    assert [file["name"] for file in data["files"]] == ["model.py", "train.py"]
    assert data["files"][1]["numbers"] == [40]
    assert data["files"][0]["lines"] == model.removesuffix("\n").split("\n")
    assert [graph["kernels"] for graph in data["graphs"]] == [{"cpp_fused_gelu_0": 0}]
    assert data["codes"] == ["int main"]


def test_of_too_much_generated_code_the_page_has_that_of_the_kernels_with_most_time():
    codes = Codes({"fast": 1, "slow": 9})
    kept, long = "y" * (MAX_CODE_CHARS - 4), "x" * 5
    assert [codes.number(*each) for each in (("fast", long), ("slow", kept), ("new", long))] == [
        *(0, 1, 0),
    ]
    assert codes.texts() == [None, kept]
    assert codes.number("slow", long) == 0


def test_of_too_much_source_the_page_has_the_recorded_lines_and_says_so():
    text = SOURCE.replace("# model", "# model, in many words")
    whole, train = files_shown([gpu_step()], {MODEL: text}, len(text))
    assert (len(whole.lines), whole.missing) == (14, "")
    cut, _ = files_shown([gpu_step()], {MODEL: text}, 30)
    assert list(cut.lines) == [12, 13, 14]
    assert cut.missing == "the page carries 4 MB of source, the user's own first"
    assert train.missing == "the file is not here, or under no --root"


def test_lines_modules_and_kernels_have_their_rooflines_by_number():
    analysis = estimated({(0, 0): ("50000000", "10000000000"), (0, 1): ("2000001", "300")})
    data, _ = report_data([analysis], {})
    work = (
        "moves 50 MB at 1,000 GB/s and does 10 GFLOP in bf16 on tensor cores at 200 TFLOP/s, of "
        "960 attainable"
    )
    near = {name: {row[0]: row[1:] for row in rows} for name, rows in data["rooflines"].items()}
    kernels = {name: at for at, (name, *_) in enumerate(data["kernels"])}
    addmm = ["21% memory", 36_978, work, 1_000]
    assert near["kernels"][kernels["extern_kernels.addmm"]] == addmm
    for name in ("lines", "kernels"):
        assert sum(row[1] for row in near[name].values()) == 36_978


def test_rows_of_the_tree_of_modules_have_what_all_below_them_could_save():
    analysis = estimated({(0, 0): ("50000000", "10000000000"), (0, 1): ("2000001", "300")})
    data, _ = report_data([analysis], {})
    assert sorted(data["rooflines"]["modules"]) == [
        ["", "", 36_978],
        ["mlp", "", 36_978],
        ["mlp.down", "launch", 0],
        ["mlp.up", "21% memory", 36_978],
    ]


def test_layers_have_it_folded_and_each_by_itself():
    analysis = load(FIXTURES / "worked" / f"gpt_compiled{SUFFIX}").analysis
    data, _ = report_data([analysis], {})
    saved = {path: saved for path, _, saved in data["rooflines"]["modules"]}
    each = [saved[f"blocks.{layer}.mlp.up"] for layer in range(12)]
    assert saved["blocks.*.mlp.up"] == sum(each) > 0
    modules = records(tables.by_module(analysis))
    assert saved[""] == sum(
        row["could_save_ns"] or 0 for row in modules if row["module"] is not None
    )


def test_a_page_leads_to_communication_where_there_is_some():
    rank = load(FIXTURES / "worked" / f"fsdp2.rank_0{SUFFIX}").analysis
    pages = html_text([rank]), html_text([gpu_step()])
    assert ['href="#communication"' in page for page in pages] == [True, False]
    assert ['id="communication"' in page for page in pages] == [True, False]
    section = pages[0].partition('<section id="communication">')[2].partition("</section>")[0]
    assert '<a href="#line=gpt.py%3A64">gpt.py:64</a>' in section


def test_lines_at_which_devices_idled_are_attributed_to():
    rank = load(FIXTURES / "worked" / f"fsdp2.rank_1{SUFFIX}").analysis
    page = html_text([rank])
    line = '<a href="#line=train_ranks.py%3A35">train_ranks.py:35</a>'
    assert f"<p>idle 34.6 ms: CPU launch overhead at {line}  loss.backward()</p>" in page


def test_the_page_is_written_as_it_is(tmp_path):
    export_html(gpu_step(), tmp_path / "deep" / "report.html")
    written = (tmp_path / "deep" / "report.html").read_text(encoding="utf-8")
    assert written == html_text([gpu_step()])
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["report.html"]


def test_a_name_that_is_no_unicode_is_written(tmp_path):
    analysis = replace(gpu_step(), notes=("lone \ud800 surrogate",))
    export_html(analysis, tmp_path / "report.html")
    assert "lone \ufffd surrogate" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(OutputError):
        export_html(gpu_step(), tmp_path / "taken" / "report.html")
