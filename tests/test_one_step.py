"""One step of a session, annotated and exported: its launches, to the nanosecond, and no others."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profiler_ext.attribution.one_step import of_step
from profiler_ext.exporters.formats import FORMATS, format_named
from profiler_ext.exporters.html.data import report_data
from profiler_ext.exporters.tables import read_csv
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Trace
from profiler_ext.sessions.merging import merge, narrowed
from profiler_ext.sessions.session import Session, load
from tests.eager_session import eager_session
from tests.test_cli import printed, refused
from tests.trace_processor import reading

H200 = Path(__file__).parent / "fixtures" / "h200"
STEP = 1
AS_JSON = ("--format", "json")
SAME = ("by_line", "by_module", "by_op", "by_phase", "communication", "coverage", "idle_by_cause")
ESTIMATED = ("bound", "launch_bound")


@pytest.fixture(scope="module", params=["cudagraphs", "compiled_autograd", "fsdp2.rank_0"])
def session(request: pytest.FixtureRequest) -> Session:
    return load(H200 / "cases" / f"{request.param}.session.pt.trace.json.gz")


@pytest.fixture(scope="module")
def step(session: Session) -> Analysis:
    return of_step(session.analysis, STEP)


def shown(analysis: Analysis) -> Session:
    """Return a session that shows an analysis."""
    session = Session(analysis.recording)
    session.analysis = analysis
    return session


def same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    """Hold two tables against each other, but for what is told by the launch after the last."""
    kept = [name for name in one.columns if name not in ESTIMATED]
    pd.testing.assert_frame_equal(one[kept], other[kept])


def test_each_table_is_that_of_the_step(session: Session, step: Analysis) -> None:
    for table in SAME:
        same(shown(step).table(table), session.table(table, step=STEP))


def test_steps_add_up_to_the_session(session: Session) -> None:
    steps = [of_step(session.analysis, each.number) for each in session.analysis.steps]
    in_steps = ~np.ma.getmaskarray(session.analysis.launches.step)
    whole = int(session.analysis.launches.duration_ns[in_steps].sum())
    assert sum(int(each.launches.duration_ns.sum()) for each in steps) == whole
    for each in steps:
        spent = np.bincount(each.shares.launch, each.shares.duration_ns, len(each.launches))
        assert spent.astype(int).tolist() == each.launches.duration_ns.tolist()
        assert sum(line.duration_ns for line in each.breakdown) % each.steps[0].wall_ns == 0


def arrows(trace: Trace) -> Counter[tuple[str, int]]:
    """Return how many ends each arrow has that begins somewhere."""
    every = [json.loads(trace.raw[at]) for at in range(len(trace.raw))]
    begun = {(each["cat"], each["id"]) for each in every if each["ph"] == "s"}
    ends = ((each["cat"], each["id"]) for each in every if each["ph"] in "sf")
    return Counter(end for end in ends if end in begun)


def test_the_trace_has_its_events_and_whole_arrows_alone(session: Session, step: Analysis) -> None:
    trace, known = step.recording.trace, arrows(session.recording.trace)
    for row, position in enumerate(trace.events.position.tolist()):
        assert json.loads(trace.raw[position])["name"] == trace.events.name[row]
    kept = arrows(trace)
    assert 0 < len(kept) < len(known)
    assert kept.items() <= known.items()


def test_a_trace_of_it_loads_back_with_its_launches(
    session: Session, step: Analysis, tmp_path: Path
) -> None:
    path = format_named("chrome").write(step, tmp_path / "trace.json.gz")
    back = load(path)
    assert back.analysis.steps == step.steps
    for table in ("by_op", "by_phase", "by_kernel", "by_line"):
        same(back.table(table), session.table(table, step=STEP))


def test_every_other_format_holds_its_time(step: Analysis, tmp_path: Path) -> None:
    whole = int(step.launches.duration_ns.sum())
    format_named("csv").write(step, tmp_path / "csv")
    assert read_csv(tmp_path / "csv" / "attribution.csv").duration_ns.sum() == whole
    format_named("parquet").write(step, tmp_path / "parquet")
    table = pd.read_parquet(tmp_path / "parquet" / "attribution.parquet")
    assert table.duration_ns.sum() == whole
    with reading(format_named("perfetto").write(step, tmp_path / "t.pftrace")) as reader:
        assert reader.import_errors() == []
    _, choices = report_data([step], {})
    assert (set(choices.steps), choices.all_steps) == ({STEP}, 1)
    format_named("tensorboard").write(step, tmp_path / "logs")
    (file,) = (tmp_path / "logs").rglob("*.attribution.json.gz")
    document = json.loads(gzip.decompress(file.read_bytes()))
    assert sum(sum(row["phase_ns"]) for row in document["tables"]["phase"]) == whole
    profiles = format_named("speedscope").write(step, tmp_path / "s.json").read_text()
    assert [sum(each["weights"]) for each in json.loads(profiles)["profiles"]] == [whole]
    tried = {"chrome", "speedscope", "csv", "parquet", "perfetto", "html", "tensorboard"}
    assert {each.name for each in FORMATS} == tried


def test_eager_lines_of_it_load_back_too(tmp_path: Path) -> None:
    session = eager_session()
    number = session.analysis.steps[-1].number
    step = of_step(session.analysis, number)
    back = load(format_named("chrome").write(step, tmp_path / "trace.json"))
    same(back.by_line(), session.by_line(step=number))


def test_a_command_takes_one_step_and_replaces_nothing_of_all_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = load(H200 / "mlp.session.pt.trace.json.gz")
    recorded.save(tmp_path)
    for step in (3, 4):
        answer = json.loads(printed(capsys, "annotate", tmp_path, "--step", step, *AS_JSON))
        spent = sum(file["duration_ns"] for file in answer["files"])
        assert spent == recorded.by_line(step=step).dropna(subset=["file"]).duration_ns.sum()
    target = tmp_path / "one_step.csv"
    assert printed(capsys, "export", tmp_path, "-o", target, "--step", 4) == f"{target}\n"
    message = "step 9 was not profiled; ask for one of the steps: 3, 4"
    assert message in refused(capsys, "annotate", tmp_path, "--step", 9)
    assert message in refused(capsys, "export", tmp_path, "-o", "one.html", "--step", 9)


def test_of_several_ranks_those_stay_that_have_the_step() -> None:
    ranks = [load(H200 / "cases" / f"ddp.rank_{n}.session.pt.trace.json.gz") for n in (0, 1)]
    both = merge(ranks)
    assert [each.steps[0].number for each in narrowed(both, step=1)] == [1, 1]
    (one,) = narrowed(both, rank=1, step=0)
    assert (one.recording.settings.rank, one.steps[0].number) == (1, 0)
    waited = [int(each.communication.waiting_ns.sum()) for each in narrowed(both, step=1)]
    assert sum(waited) == both.communication(step=1).waiting_ns.sum()
