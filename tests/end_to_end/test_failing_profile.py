"""What fails of ours in ``profile`` does not reach the loop; asking for what is lost says why."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch

import profiler_ext
from profiler_ext.capture.graphs.failed_graphs import TOO_MANY_FAILURES
from profiler_ext.errors import CaptureWarning, CoverageError, InternalError, TorchCapabilityError
from profiler_ext.kineto.reader import read_trace
from profiler_ext.records.compiles import CompileKind
from profiler_ext.records.gaps import GapReason
from profiler_ext.run.recorder import _RunProfiler
from tests.compiling import capture, fresh_torch, train_once
from tests.watched import other_gaps

__all__ = ["fresh_torch"]
pytestmark = pytest.mark.usefixtures("fresh_torch")


def fails(*_: Any, **__: Any) -> Any:
    raise RuntimeError("of ours")


@pytest.fixture
def shown():
    """Warnings are no errors, so that those within our own work are not silenced."""
    with warnings.catch_warnings():
        warnings.resetwarnings()
        yield


def looped(**options: Any) -> Any:
    """Profile two steps of a loop, which must come to its end."""
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
    with profiler_ext.profile(schedule=schedule, **options) as prof:
        for _ in range(2):
            torch.ones(2).sum()
            prof.step()
    assert prof.step_num == 2
    return prof


@pytest.mark.usefixtures("shown")
@pytest.mark.parametrize(
    "where",
    [
        "profiler.switch.enable",
        "profiler.process.anything_compiled",
        "profiler.process.threads_config",
        "profiler.profilers.mark_steps",
        "profiler.profilers.begins_recording",
        "profiler.CalledModules",
        "profiler.UnrecordedSteps",
        "recorded_threads.records_this_thread_only",
        "recorded_threads.ThreadRecordingProfiler.is_elsewhere",
    ],
)
def test_a_failure_that_costs_no_trace_is_a_gap_of_the_session(monkeypatch, where: str) -> None:
    monkeypatch.setattr(f"profiler_ext.profiling.{where}", fails)
    with pytest.warns(CaptureWarning, match="of ours"):
        prof = looped()
    gaps = [gap.reason for gap in other_gaps(prof.session)]
    assert set(gaps) == {GapReason.CAPTURE_FAILED}
    assert len(prof.session.launches()) > 0


@pytest.mark.usefixtures("shown")
def test_a_setting_that_cannot_be_read_costs_nothing_else(monkeypatch) -> None:
    sound = looped().session.by_line()
    monkeypatch.setattr("profiler_ext.profiling.profiler.process.debug_settings", fails)
    with pytest.warns(CaptureWarning, match="of ours"):
        session = looped().session
    assert [gap.reason for gap in other_gaps(session)] == [GapReason.PARTLY_CAPTURED]
    assert session.by_line()["line"].tolist() == sound["line"].tolist()


@pytest.mark.usefixtures("shown")
@pytest.mark.parametrize(
    "where",
    [
        "profiler.settings_of_process",
        *(
            f"assembly.{part}"
            for part in (
                "switch.graphs",
                "_compiles",
                "_gaps",
                "with_valid_utf8",
                "_source_roots",
                "_learn",
            )
        ),
        "assembly._kept",
        "assembly._with_cells",
    ],
)
def test_a_part_of_a_recording_that_fails_costs_no_session(monkeypatch, where: str) -> None:
    sound = looped().session.launches()
    monkeypatch.setattr(f"profiler_ext.profiling.{where}", fails)
    with pytest.warns(CaptureWarning, match="of ours"):
        prof = looped()
    gaps = {gap.reason for gap in other_gaps(prof.session)}
    is_reported_later = where.rpartition(".")[2] in (
        "with_valid_utf8",
        "_source_roots",
        "_learn",
        "_with_cells",
    )
    assert gaps <= {GapReason.CAPTURE_FAILED, GapReason.CODE_NOT_KEPT, GapReason.LINES_FAILED}
    assert is_reported_later or gaps
    assert list(prof.session.launches().name) == list(sound.name)


@pytest.mark.usefixtures("shown")
def test_where_the_graphs_are_lost_what_compiling_took_is_saved_and_read(
    monkeypatch, tmp_path
) -> None:
    monkeypatch.setattr("profiler_ext.capture.graphs.failed_graphs._without", fails)
    with pytest.warns(CaptureWarning, match="of ours"), profiler_ext.profile() as prof:
        train_once()
    session = profiler_ext.load(prof.session.save(tmp_path / "saved"))
    [compiled] = [each for each in session.recording.compiles if each.kind is CompileKind.FRAME]
    assert (session.recording.graphs, compiled.graphs) == ((), ())
    assert sum(each.duration_ns for each in compiled.times) == compiled.duration_ns > 0
    assert GapReason.CAPTURE_FAILED in {gap.reason for gap in session.recording.gaps}


def test_ctrl_c_where_a_recording_begins_is_the_programs(monkeypatch) -> None:
    """Torch has prepared to record then, and cannot end what has not begun."""

    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("profiler_ext.profiling.profiler.profile._hold", interrupted)
    with pytest.raises(KeyboardInterrupt):
        looped()
    monkeypatch.undo()
    assert len(looped().session.launches()) > 0


def test_where_attribution_fails_the_recording_is_saved_and_attributed_by_who_reads_it(
    monkeypatch, tmp_path
) -> None:
    session = looped().session
    whole = profiler_ext.load(session.save(tmp_path / "whole"))
    del session.analysis
    monkeypatch.setattr("profiler_ext.sessions.session.attribution.attribute", fails)
    saved = session.save(tmp_path / "plain")
    monkeypatch.undo()
    plain = profiler_ext.load(saved)
    pd.testing.assert_frame_equal(plain.attribution(), whole.attribution())
    new = set(plain.recording.gaps) - set(whole.recording.gaps)
    assert {gap.reason for gap in new} == {GapReason.ATTRIBUTION_FAILED}
    assert any("attribution_failed: RuntimeError" in note for note in plain.notes)


def of_run(kept: list[Any], folder: Path) -> Any:
    """Profile two steps of a loop as ``run`` does whose session will be in a folder."""
    recorder = SimpleNamespace(
        is_wanted=lambda: True,
        take=kept.append,
        refuse=fails,
        on_processing=bool,
        folder=folder,
        window=SimpleNamespace(is_marked=lambda step: True, first=1),
    )
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
    prof = _RunProfiler(recorder, schedule=schedule)
    prof.start()
    for _ in range(2):
        torch.ones(2).sum()
        prof.step()
    prof.stop()
    return prof


@pytest.mark.usefixtures("shown")
def test_a_step_of_run_counts_where_its_mark_fails(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("profiler_ext.run.recorder.profilers.mark_steps", fails)
    kept: list[Any] = []
    with pytest.warns(CaptureWarning, match="of ours"):
        prof = of_run(kept, tmp_path)
    [session] = kept
    assert prof.step_num == 2
    assert {gap.reason for gap in other_gaps(session)} == {GapReason.CAPTURE_FAILED}


@pytest.mark.usefixtures("shown")
def test_where_run_makes_no_session_of_a_trace_it_keeps_torchs(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("profiler_ext.profiling.torch_views.read_trace", fails)
    kept: list[Any] = []
    with pytest.warns(CaptureWarning, match="of ours"):
        prof = of_run(kept, tmp_path / "out")
    path = prof.kept_trace()
    assert (kept, path) == ([], tmp_path / "out" / "torch.pt.trace.json.gz")
    assert "aten::sum" in read_trace(path).events.name.strings


@pytest.mark.usefixtures("shown")
@pytest.mark.parametrize(
    "where",
    ["profiling.torch_views.read_trace", "profiling.exclusive.ExclusiveProfiler._acquire_profiler"],
)
def test_where_there_is_no_session_asking_for_it_says_why(monkeypatch, where: str) -> None:
    monkeypatch.setattr(f"profiler_ext.{where}", fails)
    with pytest.warns(CaptureWarning, match="of ours"):
        prof = looped()
    with pytest.raises(InternalError, match="of ours"):
        _ = prof.session


@pytest.mark.parametrize("what", ["_Isolation._hold_signals", "own_modules", "_depth"])
def test_what_cannot_be_set_aside_costs_nothing(monkeypatch, what: str) -> None:
    monkeypatch.setattr(f"profiler_ext.isolation.user_state.{what}", fails)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(looped().session.launches()) > 0


def test_a_torch_that_does_not_fit_is_an_error_before_the_loop(monkeypatch) -> None:
    def capability_error(**_: Any) -> None:
        raise TorchCapabilityError("it lacks a place")

    monkeypatch.setattr("profiler_ext.profiling.profiler.switch.enable", capability_error)
    with pytest.raises(TorchCapabilityError, match="it lacks a place"):
        looped()


def test_an_option_that_torch_does_not_know_is_an_error_at_the_start() -> None:
    with pytest.raises(TypeError, match="no_such_option"):
        looped(no_such_option=True)


def test_what_the_programs_own_callback_raises_is_the_programs() -> None:
    """As with torch's profiler; so a check of the coverage in it can fail."""

    def check(prof: Any) -> None:
        prof.assert_coverage(2.0, level="op", scope="all")

    with pytest.raises(CoverageError, match="expected 200"):
        looped(on_trace_ready=check)


def test_capture_that_took_itself_out_says_so_and_tells_nothing_of_what_is_compiled_then() -> None:
    profiler_ext.enable()
    guard = capture().guard
    with pytest.warns(CaptureWarning):
        for number in range(16):
            guard.run(f"hook {number}", fails)
    assert guard.is_disabled
    compiled = torch.compile(lambda x: x @ x)
    compiled(torch.ones(3, 3))
    with profiler_ext.profile() as prof:
        compiled(torch.ones(3, 3))
    assert TOO_MANY_FAILURES in other_gaps(prof.session)
    assert any(TOO_MANY_FAILURES.detail in note for note in prof.session.analysis.notes)
    launches = prof.launches()
    assert launches[launches.name == "aten::mm"].gap.tolist() == [GapReason.GRAPH_NOT_CAPTURED]
