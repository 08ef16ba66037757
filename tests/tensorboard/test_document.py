"""The file that the view reads says what the tables say, and what each kernel is made of."""

import gzip
import json
import os
from dataclasses import replace

import pytest

from profiler_ext import load
from profiler_ext.errors import TraceError
from profiler_ext.exporters.tensorboard_plugin.document import (
    SUFFIX,
    Account,
    Row,
    encoded,
    read_checked,
)
from profiler_ext.exporters.tensorboard_plugin.plugin import has_runs, runs_by_name
from profiler_ext.exporters.tensorboard_plugin.writing import (
    make_document,
    top_findings,
    write_attribution,
)
from profiler_ext.exporters.views.findings import saving_texts, why_text
from profiler_ext.findings import find
from tests.analyses import gpu_step
from tests.attribution.recordings import FIXTURES
from tests.cases.neutral import SUFFIX as SESSION
from tests.exporters.estimated import estimated
from tests.tensorboard.sessions import ROOT, mlp


def test_the_lines_are_those_of_the_table_with_the_largest_first():
    document = make_document(gpu_step())
    assert [(row.names, row.launches, row.phase_ns) for row in document.tables.line] == [
        (("model.py:12", "h = self.up(x)"), 3, (50_000, 50_000, 0, 0, 0, 0)),
        (("(no source line)", ""), 4, (0, 0, 0, 4_000, 60_500, 10_000)),
        (("model.py:13", "h = F.gelu(h)"), 2, (13_334, 20_000, 0, 0, 0, 0)),
        (("(library calls with an open boundary)", ""), 1, (0, 20_000, 0, 0, 0, 0)),
        (("model.py:14", "return self.down(h.to(x.dtype))"), 1, (6_667, 0, 0, 0, 0, 0)),
    ]


def test_a_kernel_s_parts_are_its_ops_with_line_module_and_phase():
    document = make_document(gpu_step())
    tables_ = document.tables
    found = [
        (
            tables_.line[part.line].names[0],
            tables_.module[part.module].names[0],
            document.ops[part.op],
            document.phases[part.phase],
            part.launches,
            part.duration_ns,
        )
        for part in document.parts
        if tables_.kernel[document.fusions[part.fusion].kernel].names[0]
        == "triton_red_fused_gelu_backward_sum_0"
    ]
    assert sorted(found, key=lambda part: part[2]) == [
        ("model.py:13", "mlp", "aten.mul.Tensor", "backward", 1, 20_000),
        ("model.py:12", "mlp.up", "aten.sum.dim_IntList", "backward", 1, 10_000),
    ]


@pytest.mark.parametrize("by", ["line", "module", "kernel"])
def test_the_parts_of_a_recorded_session_add_up_to_every_table(by):
    document = make_document(mlp().analysis)
    sums = {}
    for part in document.parts:
        owner = document.fusions[part.fusion] if by == "kernel" else part
        row, phase = getattr(owner, by), part.phase
        sums[row, phase] = sums.get((row, phase), 0) + part.duration_ns
    assert sums == {
        (number, phase): duration
        for number, row in enumerate(getattr(document.tables, by))
        for phase, duration in enumerate(row.phase_ns)
        if (number, phase) in sums or duration
    }


def test_launches_of_one_kernel_with_other_contents_are_distinguished():
    document = make_document(mlp().analysis)
    held = {}
    for part in document.parts:
        name, own, _ = document.tables.kernel[document.fusions[part.fusion].kernel].names
        if name == "extern_kernels.mm" and "64x64_8x5_nt" in own:
            line = document.tables.line[part.line].names[0]
            held.setdefault(part.fusion, []).append((line, document.ops[part.op]))
    assert sorted(held.values()) == [
        [("examples/mlp.py:19", "aten.mm.default")],
        [("examples/mlp.py:21", "aten.mm.default")],
    ]


def test_the_contents_add_up_to_all_launches():
    session = mlp()
    document = make_document(session.analysis)
    launches = session.analysis.launches
    assert sum(fusion.launches for fusion in document.fusions) == len(launches)
    assert sum(each.duration_ns for each in document.fusions) == int(launches.duration_ns.sum())


def test_a_recorded_session_says_what_was_profiled_and_the_step_time_breakdown():
    document = make_document(mlp().analysis)
    assert document.heading == (
        "examples/mlp.py · torch 2.11.0+cu130 · NVIDIA H200 · 2 steps · 64 launches"
    )
    assert document.breakdown == (
        Account("compiled: attributed to source", 87_839),
        Account("eager: attributed to ATen ops only", 67_583),
        Account("device idle", 4_733_545),
    )
    assert document.tables.line[1] == Row(
        names=("examples/mlp.py:21", "return F.relu(self.down(h)) + x"),
        launches=18,
        phase_ns=(21_256, 26_136, 0, 0, 0, 0),
        inclusive_ns=47_392,
        file=0,
        line=21,
        roofline="latency",
    )


def test_a_row_says_how_near_it_is_to_its_roofline_and_what_it_could_save():
    analysis = estimated({(0, 0): ("50000000", "10000000000"), (0, 1): ("2000001", "300")})
    shown = make_document(analysis).tables
    found = {
        name: [(row.names[0], row.roofline, row.could_save_ns) for row in rows if row.could_save_ns]
        for name, rows in (("line", shown.line), ("module", shown.module), ("kernel", shown.kernel))
    }
    assert found == {
        "line": [("model.py:12", "21% memory", 36_978)],
        "module": [("mlp.up", "21% memory", 36_978)],
        "kernel": [("extern_kernels.addmm", "21% memory", 36_978)],
    }


def test_what_to_do_first_is_what_the_rules_found():
    session = load(FIXTURES / "findings" / f"pageable_copy{SESSION}")
    first = make_document(session.analysis).recommendations
    (found,), findings = first.findings, session.recommendations.ranked[0]
    assert first.title == "Top recommendations: step 15.1 ms"
    assert (found.saving, found.summary) == (" ".join(saving_texts(findings)), findings.summary)
    assert (found.evidence, found.remedy, first.more) == (why_text(findings), findings.remedy, "")
    assert found.location.startswith("flaws.py:147 · ")


def test_of_more_findings_than_are_shown_it_is_reported_how_many_and_where():
    analysis = load(FIXTURES / "findings" / f"pageable_copy{SESSION}").analysis
    findings = find(analysis)
    many = replace(findings, ranked=findings.ranked * 8)
    first = top_findings(many, analysis.recording.settings)
    assert (len(first.findings), first.more) == (5, "and 3 more: profiler-ext report --findings")


def test_a_source_is_whole_where_its_recorded_lines_still_stand():
    text = (ROOT / "examples" / "mlp.py").read_text()
    (source,) = make_document(mlp().analysis).files
    assert (source.name, source.missing) == ("examples/mlp.py", "")
    assert [line for _, line in source.lines] == text.splitlines()
    assert [number for number, _ in source.lines] == list(range(1, len(source.lines) + 1))


def test_a_source_that_is_elsewhere_has_only_its_recorded_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (source,) = make_document(mlp().analysis).files
    assert (source.name, source.missing) == (
        "examples/mlp.py",
        "the file is not here, or under no --root",
    )
    assert dict(source.lines)[19] == "h = F.gelu(self.up(x))"


def test_names_lose_what_steers_a_terminal():
    analysis = gpu_step()
    places = tuple(
        replace(place, module="\x1b[31mup") if place.module else place for place in analysis.places
    )
    document = make_document(replace(analysis, places=places))
    named = [row.names[0] for row in document.tables.module]
    assert "\N{REPLACEMENT CHARACTER}[31mup" in named


def test_a_session_without_steps_is_shown_empty(tmp_path):
    analysis = replace(gpu_step(), steps=(), breakdown=())
    analysis.launches.step[:] = type(analysis.launches.step)(0, mask=True)[()]
    path = write_attribution(analysis, tmp_path, "rank0")
    document = json.loads(read_checked(path))
    assert (document["steps"], document["parts"], document["breakdown"]) == (0, [], [])


def test_the_same_session_gives_the_same_bytes(tmp_path):
    first = write_attribution(mlp().analysis, tmp_path, "first").read_bytes()
    assert write_attribution(mlp().analysis, tmp_path, "second").read_bytes() == first


def test_runs_are_called_after_folder_and_process(tmp_path):
    for run in ("rank0", "big/rank0", "big/rank1", "deep/er/rank0"):
        path = tmp_path / f"{run}{SUFFIX}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / f".rank0{SUFFIX}.half").touch()
    (tmp_path / f".rank9{SUFFIX}").touch()
    (tmp_path / "rank0.pt.trace.json.gz").touch()
    assert list(runs_by_name(tmp_path)) == ["big/rank0", "big/rank1", "deep/er/rank0", "rank0"]


def test_a_folder_without_our_file_has_no_runs(tmp_path):
    (tmp_path / "events.out.tfevents.1.host").touch()
    assert not has_runs(tmp_path)
    assert not has_runs(tmp_path / "missing")


WHOLE = encoded(make_document(gpu_step()))


def changed(**values) -> bytes:
    """Return a document's file with some keys replaced."""
    return gzip.compress(json.dumps(json.loads(gzip.decompress(WHOLE)) | values).encode())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (WHOLE[:200], "r.gz is cut short; reload when it is written, or export"),
        (b"", "r.gz is no attribution of profiler-ext .*truncated.*; export the session again"),
        (b"\x89PNG", "r.gz is no attribution of profiler-ext .*; export the session again"),
        (gzip.compress(b'{"x":' + b"[" * 200_000), "r.gz is nested too deep"),
        (gzip.compress(b" " * (80 << 20)), "r.gz unpacks to too many bytes"),
        (WHOLE[:100] + b"\0" * 50, "r.gz is (damaged gzip data|cut short)"),
        (gzip.compress(b"[]", mtime=0), "r.gz is no attribution of profiler-ext"),
        (gzip.compress(b"\xff", mtime=0), "r.gz is no attribution of profiler-ext"),
        (changed(format="other"), "r.gz is no attribution of profiler-ext"),
        (changed(parts=[[1, 2]]), "r.gz is no attribution of profiler-ext"),
        (changed(heading=5), r"r.gz is no attribution .*\$.heading"),
        (
            changed(version=3, tables=None),
            r"newer profiler-ext \(version 3; this one reads",
        ),
    ],
)
def test_a_foreign_or_half_written_file_says_so_in_one_sentence(tmp_path, content, message):
    path = tmp_path / "r.gz"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message):
        read_checked(path)


def test_a_file_of_version_1_is_read_with_the_names_of_today(tmp_path):
    now = encoded(make_document(load(FIXTURES / "findings" / f"pageable_copy{SESSION}").analysis))
    plain = json.loads(gzip.decompress(now))
    before = plain | {"version": 1}
    for name, earlier in (("breakdown", "ledger"), ("overview", "said")):
        before[earlier] = before.pop(name)
    del before["recommendations"]
    finding = {"saving": "at_stake", "summary": "what", "location": "where", "evidence": "why"}
    first = dict(plain["recommendations"])
    first["found"] = [
        {finding.get(name, name): text for name, text in each.items()}
        for each in first.pop("findings")
    ]
    before["first"] = first
    before["tables"] = {
        by: [{"near" if k == "roofline" else k: v for k, v in row.items()} for row in rows]
        for by, rows in before["tables"].items()
    }
    assert any("near" in row for row in before["tables"]["line"])
    path = tmp_path / "r.gz"
    path.write_bytes(gzip.compress(json.dumps(before).encode()))
    assert json.loads(read_checked(path)) == plain


def test_a_file_that_went_away_says_so(tmp_path):
    with pytest.raises(TraceError, match=r"cannot read r\.gz: No such file or directory"):
        read_checked(tmp_path / "r.gz")


def test_what_is_no_regular_file_is_neither_listed_nor_read(tmp_path):
    os.mkfifo(tmp_path / f"pipe{SUFFIX}")
    (tmp_path / f"folder{SUFFIX}").mkdir()
    (tmp_path / f"whole{SUFFIX}").write_bytes(WHOLE)
    assert list(runs_by_name(tmp_path)) == ["whole"]
    with pytest.raises(TraceError, match=f"pipe{SUFFIX} is no regular file"):
        read_checked(tmp_path / f"pipe{SUFFIX}")
