"""``profile`` stands in for torch's profiler, and gives sessions, tables and files."""

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch.profiler

import profiler_ext
from profiler_ext.errors import CoverageError, LateCaptureWarning, UsageError
from profiler_ext.profiling import profiler
from profiler_ext.sessions.session import Session, load
from profiler_ext.torch_compat.process import live_artifacts
from tests import frames as tables
from tests.compiling import TWICE_LINES, train_once
from tests.end_to_end.processes import python

TABLES = (
    "launches",
    "attribution",
    "by_line",
    "by_module",
    "by_op",
    "by_phase",
    "by_link",
    "by_mechanism",
)
TABLES += ("by_kernel", "graphs", "coverage")


def recorded(steps: int = 1, **options: Any) -> Any:
    """A profile of steps whose graphs were compiled before the first recorded one."""
    profiler_ext.enable(strict=True)
    train_once()
    with profiler_ext.profile(strict=True, **options) as prof:
        for _ in range(steps):
            train_once(fresh=False)
            prof.step()
    return prof


@pytest.mark.usefixtures("fresh_torch")
def test_a_profile_is_torch_s_profiler_and_takes_its_options() -> None:
    # Not with_stack: torch then points at names of module bodies that are gone after an import.
    prof = recorded(record_shapes=True, with_flops=True, profile_memory=True)
    assert isinstance(prof, torch.profiler.profile)
    assert (prof.record_shapes, prof.with_flops, prof.profile_memory) == (True, True, True)
    assert "aten::mm" in {row.key for row in prof.key_averages()}


@pytest.mark.usefixtures("fresh_torch")
def test_the_launches_of_a_block_are_attributed_to_their_lines() -> None:
    rows = recorded().attribution()
    first, second = TWICE_LINES
    products = rows[rows.aten_op == "aten.mm.default"]
    assert list(zip(products.phase, products.line, strict=True)) == [
        ("forward", first),
        ("forward", second),
        ("backward", second),
        ("backward", first),
    ]


@pytest.mark.usefixtures("fresh_torch")
def test_each_cycle_of_a_schedule_is_a_session_of_its_own() -> None:
    ready: list[tuple[Any, int]] = []
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    prof = recorded(
        steps=8,
        schedule=schedule,
        acc_events=True,
        on_trace_ready=lambda profiler: ready.append((profiler, len(profiler.sessions))),
    )
    assert ready == [(prof, 1), (prof, 2)]
    assert prof.session is prof.sessions[-1]
    found = [[step.number for step in each.analysis.steps] for each in prof.sessions]
    assert found == [[2, 3], [6, 7]]
    for session in prof.sessions:
        launches = session.launches()
        assert launches.graph.notna().groupby(launches.step).sum().tolist() == [4, 4]
        session.assert_coverage(1.0)


@pytest.mark.usefixtures("fresh_torch")
def test_a_session_knows_how_long_the_steps_before_it_took_but_the_first(tmp_path: Path) -> None:
    schedule = torch.profiler.schedule(wait=4, warmup=1, active=1, repeat=2)
    first, second = recorded(steps=12, schedule=schedule, acc_events=True).sessions
    before = first.recording.settings.unprofiled_steps_ns
    first.save(tmp_path)
    assert profiler_ext.load(tmp_path).recording.settings.unprofiled_steps_ns == before
    both = second.recording.settings.unprofiled_steps_ns
    assert (len(before), len(both)) == (3, 3)  # the later half of the seven by then, at least three
    assert not set(before) & set(both)
    assert all(took_ns > 0 for took_ns in both)


@pytest.mark.usefixtures("fresh_torch")
def test_of_a_long_run_the_last_sessions_are_kept() -> None:
    cpu = [torch.profiler.ProfilerActivity.CPU]
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1)
    with profiler_ext.profile(keep=2, schedule=schedule, activities=cpu, lines=False) as prof:
        for _ in range(8):
            torch.ones(2).sum()
            prof.step()
    recorded_steps = [[step.number for step in each.analysis.steps] for each in prof.sessions]
    assert recorded_steps == [[5], [7]]
    with pytest.raises(UsageError, match="keep is 0, expected 1 or more"):
        profiler_ext.profile(keep=0)


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.filterwarnings("ignore:Profiler won.t be using warmup")
def test_a_cycle_that_nothing_ran_in_does_not_stand_for_the_one_before() -> None:
    prof = recorded(steps=2, schedule=torch.profiler.schedule(wait=0, warmup=0, active=2))
    whole, empty = prof.sessions
    assert prof.session is whole
    assert len(whole.launches()) > 0 == len(empty.launches())


@pytest.mark.usefixtures("fresh_torch")
def test_on_trace_ready_can_write_the_trace_as_torch_would(tmp_path: Path) -> None:
    def write(profiler: Any) -> None:
        profiler.export_chrome_trace(str(tmp_path / "trace.json"))
        profiler.export_chrome_trace(str(tmp_path / "trace.json.gz"))

    recorded(on_trace_ready=write)
    text = (tmp_path / "trace.json").read_bytes()
    assert gzip.decompress((tmp_path / "trace.json.gz").read_bytes()) == text
    assert "aten::mm" in {event.get("name") for event in json.loads(text)["traceEvents"]}


@pytest.mark.usefixtures("fresh_torch")
def test_torch_s_own_tensorboard_handler_works_as_on_trace_ready(tmp_path: Path) -> None:
    recorded(on_trace_ready=torch.profiler.tensorboard_trace_handler(str(tmp_path)))
    [file] = tmp_path.glob("*.pt.trace.json")
    assert json.loads(file.read_text())["traceEvents"]


@pytest.mark.usefixtures("fresh_torch")
def test_each_profile_after_the_compile_says_so_before_it_runs_with_the_remedy() -> None:
    train_once()
    for _ in range(2):
        with pytest.warns(LateCaptureWarning) as warned:
            profile = profiler_ext.profile()
        [warning] = warned
        assert str(warning.message).endswith(
            "start with `profiler-ext run`, call `profiler_ext.enable()` at the top of the "
            "script, or set PROFILER_EXT=1; where it is compiled already, call "
            "`torch.compiler.reset()` and give `profile(recompile=True)`, and its next call "
            "compiles it once more"
        )
        assert warning.filename == __file__
        with profile:
            train_once(fresh=False)


@pytest.mark.usefixtures("fresh_torch")
def test_who_does_as_the_warning_says_has_lines_and_no_other_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = live_artifacts()  # earlier tests may hold some
    monkeypatch.setattr(
        profiler,
        "live_artifacts",
        lambda: [mine for mine in live_artifacts() if all(mine is not each for each in others)],
    )
    train_once()
    with pytest.warns(LateCaptureWarning):
        profiler_ext.profile()
    torch.compiler.reset()
    for options in ({"recompile": True}, {}):
        with profiler_ext.profile(**options) as profile:
            train_once(fresh=False)
        profile.assert_coverage(1.0)


@pytest.mark.usefixtures("fresh_torch")
def test_what_was_compiled_before_capture_is_a_gap_that_conserves_time() -> None:
    train_once()
    with pytest.warns(LateCaptureWarning), profiler_ext.profile(lines=False) as prof:
        train_once(fresh=False)
    launches, rows = prof.launches(), prof.attribution()
    assert set(rows.node.dropna()) == set()
    assert "graph_not_captured" in set(rows.gap.dropna())
    assert rows.duration_ns.sum() == launches.duration_ns.sum() > 0
    assert any("PROFILER_EXT=1" in note for note in prof.session.notes)
    with pytest.raises(CoverageError, match="graph_not_captured"):
        prof.assert_coverage(0.5, level="line", scope="all")


@pytest.mark.usefixtures("fresh_torch")
def test_coverage_below_what_was_asserted_is_an_error_that_shows_the_step_time_breakdown() -> None:
    prof = recorded(lines=False)  # else eager launches have lines, from Python 3.12 on
    prof.assert_coverage(1.0)
    with pytest.raises(
        CoverageError, match=r"of the all device time is attributed to a line"
    ) as caught:
        prof.assert_coverage(1.0, level="line", scope="all")
    assert "eager" in str(caught.value)


@pytest.mark.usefixtures("fresh_torch")
def test_before_anything_was_recorded_there_is_no_session() -> None:
    prof = profiler_ext.profile()
    with pytest.raises(UsageError, match="nothing was recorded yet"):
        prof.by_line()


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.parametrize("name", ["s.json", "s.json.gz", "s.pt.trace.json.gz"])
def test_a_saved_session_loads_back_equal(name: str, tmp_path: Path) -> None:
    live = recorded(steps=2).session
    back = load(live.export(tmp_path / name))
    for table in TABLES:
        pd.testing.assert_frame_equal(getattr(back, table)(), getattr(live, table)())
    assert back.recording.graphs == live.recording.graphs
    assert back.recording.settings == live.recording.settings
    assert back.notes == live.notes


@pytest.mark.usefixtures("fresh_torch")
def test_a_suffix_names_the_format(tmp_path: Path) -> None:
    prof = recorded(steps=2)
    session: Session = prof.session
    assert prof.export(tmp_path / "t.pftrace").read_bytes()[:1] == b"\x0a"
    assert "compiling.py" in prof.export(tmp_path / "report.html").read_text()
    csv, parquet = prof.export(tmp_path / "t.csv"), prof.export(tmp_path / "t.parquet")
    for name in ("launches", "attribution", "coverage", "graphs"):
        live = getattr(session, name)()
        pd.testing.assert_frame_equal(tables.read_csv(csv / f"{name}.csv"), live)
        pd.testing.assert_frame_equal(tables.read_parquet(parquet / f"{name}.parquet"), live)
    assert prof.export(tmp_path / "logs") == tmp_path / "logs" / "rank0.pt.trace.json.gz"
    assert load(tmp_path / "logs" / "rank0.pt.trace.json.gz").launches().shape[0] > 0


@pytest.mark.usefixtures("fresh_torch")
def test_a_suffix_that_names_no_format_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    prof = recorded()
    with pytest.raises(UsageError, match=r"no format has the suffix of t.docx; use .*pftrace"):
        prof.export(tmp_path / "t.docx")
    assert not (tmp_path / "t.docx").exists()


LIGHT = """
import sys
import profiler_ext
heavy = {"torch", "pandas", "perfetto", "numpy", "rich", "msgspec"} & set(sys.modules)
assert not heavy, heavy
session = profiler_ext.load(sys.argv[1])
session.by_line(), session.report(), session.export(sys.argv[1] + ".pftrace")
assert "torch" not in sys.modules
"""


def test_importing_is_light_and_a_recording_is_read_without_torch(
    fresh_torch: Path, tmp_path: Path
) -> None:
    recorded().session.save(tmp_path)
    trace = tmp_path / "session.pt.trace.json.gz"
    finished = python(fresh_torch, tmp_path, "-c", LIGHT, trace)
    assert (finished.returncode, finished.stderr) == (0, "")


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.parametrize("autograd_cache", [True, False])
def test_what_is_compiled_again_is_attributed_to_its_lines(
    autograd_cache: bool,
) -> None:
    with torch._functorch.config.patch(enable_autograd_cache=autograd_cache):
        profiler_ext.enable(strict=True)
        train_once()
        recorded().assert_coverage(1.0)


def multiplied(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def also_multiplied(x: torch.Tensor) -> torch.Tensor:
    return x @ x


@pytest.mark.usefixtures("fresh_torch")
def test_after_a_reset_an_equal_function_of_other_lines_has_its_own() -> None:
    profiler_ext.enable(strict=True)
    x = torch.ones(8, 8)
    for function in (multiplied, also_multiplied):
        torch._dynamo.reset()
        compiled = torch.compile(function)
        compiled(x)
    with profiler_ext.profile(strict=True) as prof:
        compiled(x)
        prof.step()
    by_line = prof.by_line().dropna(subset="line")
    assert by_line.function.tolist() == ["also_multiplied"]
    prof.assert_coverage(1.0)
