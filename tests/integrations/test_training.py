"""A profiled training ends as it does without us, and its session is there; failures are said."""

from __future__ import annotations

import atexit
import copy
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import profiler_ext
from profiler_ext.errors import CaptureWarning, OutputError, UsageError
from profiler_ext.exporters.formats import FILE_NAME
from profiler_ext.findings.unprofiled_step import MIN_UNPROFILED_STEPS
from profiler_ext.integrations.training import TrainingProfile
from profiler_ext.profiling.profiler import profile
from profiler_ext.torch_compat.profilers import USE
from tests.integrations.training import Model, calls, data, one_rank, parameters, steps

__all__ = ["one_rank"]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    assert not USE.is_used_by_us, "a profiler is still on"
    profiler_ext.disable()


def train(profiled: TrainingProfile | None, batches: int = 6, fails_at: int = -1) -> list[float]:
    """Train, with a profile of it or without; what is learnt is the same."""
    model = Model()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    if profiled:
        profiled.start()
    for number, batch in enumerate(data(batches, rows=1)):
        if number == fails_at:
            raise KeyError("the program's own")
        model(**batch)["loss"].backward()
        sgd.step()
        sgd.zero_grad()
        if profiled:
            profiled.step()
    if profiled:
        profiled.stop()
    return parameters(model)


WITHOUT = train(None)


def test_the_asked_steps_are_recorded_and_the_files_written(tmp_path: Path) -> None:
    given = TrainingProfile(tmp_path / "out", skip=2, steps=3)
    assert train(given) == WITHOUT
    assert steps(tmp_path / "out") == [2, 3, 4]
    assert {each.name for each in (tmp_path / "out").iterdir()} >= {"report.html", "trace.pftrace"}
    assert given.folder == tmp_path / "out"
    assert calls(given.session.recording, "Optimizer.step#SGD.step") == 3


def test_by_default_two_steps_are_recorded_after_five_of_which_three_are_timed(
    tmp_path: Path,
) -> None:
    given = TrainingProfile(tmp_path / "out")
    train(given, batches=8)
    assert steps(tmp_path / "out") == [5, 6]
    assert len(given.session.recording.settings.unprofiled_steps_ns) == MIN_UNPROFILED_STEPS


def test_the_profiler_is_gone_once_the_steps_are_recorded(tmp_path: Path) -> None:
    given = TrainingProfile(tmp_path / "out", skip=0, steps=1)
    given.start()
    assert USE.is_used_by_us
    given.step()
    assert not USE.is_used_by_us
    assert given._running is None
    given.step()
    given.stop()
    assert steps(tmp_path / "out") == [0]


def test_each_training_replaces_what_the_one_before_it_wrote(tmp_path: Path) -> None:
    given = TrainingProfile(tmp_path / "out", skip=1, steps=1)
    train(given)
    first = given.session
    assert train(given) == WITHOUT
    assert given.session is not first
    assert steps(tmp_path / "out") == [1]


def test_an_exception_of_the_training_leaves_what_was_recorded_until_then(tmp_path: Path) -> None:
    given = TrainingProfile(tmp_path / "out", skip=1, steps=4)
    with pytest.raises(KeyError, match="the program's own"):
        train(given, fails_at=3)
    assert USE.is_used_by_us
    given.stop()  # which Python's end does too
    assert steps(tmp_path / "out") == [1, 2]


def test_what_is_under_way_ends_with_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_exit = set()
    monkeypatch.setattr(atexit, "register", at_exit.add)
    monkeypatch.setattr(atexit, "unregister", at_exit.discard)
    given = TrainingProfile(tmp_path / "out", skip=0, steps=2)
    given.start()
    given.step()
    (end,) = at_exit
    end()
    assert at_exit == set()
    assert (tmp_path / "out" / FILE_NAME).is_file()


def test_a_training_that_is_too_short_is_reported(tmp_path: Path) -> None:
    given = TrainingProfile(tmp_path / "out", skip=9)
    with pytest.warns(CaptureWarning, match=r"after 6 steps, .* skip is 9.* give a smaller skip"):
        assert train(given) == WITHOUT
    assert given.session is None


@pytest.mark.parametrize("method", ["start", "step", "stop"])
def test_what_fails_in_the_profiler_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    sound = getattr(profile, method)

    def fails(self: profile) -> None:
        if method == "stop":
            sound(self)
        raise RuntimeError("planted")

    given = TrainingProfile(tmp_path / "out", skip=1, steps=2)
    monkeypatch.setattr(profile, method, fails)
    with pytest.warns(CaptureWarning, match="planted"):
        assert train(given) == WITHOUT
    assert (given.session is not None) == (method == "stop")


def test_a_folder_that_is_lost_is_a_warning_that_says_where_the_session_is(tmp_path: Path) -> None:
    given = TrainingProfile(tmp_path / "out", skip=1, steps=2)
    (tmp_path / "out").rmdir()
    (tmp_path / "out").write_text("a file")
    with pytest.warns(CaptureWarning, match="what was recorded is in .* instead"):
        assert train(given) == WITHOUT


def test_a_logger_that_fails_leaves_the_others_and_the_training(tmp_path: Path) -> None:
    seen = []

    def fails(*_: object) -> None:
        raise UsageError("no run was begun")

    given = TrainingProfile(
        tmp_path / "out", loggers=[fails, lambda *reported: seen.append(reported)], skip=1, steps=1
    )
    with pytest.warns(CaptureWarning, match="no run was begun"):
        assert train(given) == WITHOUT
    assert seen == [(given.session, tmp_path / "out")]


@pytest.mark.parametrize("rank", ["0", "1"])
def test_each_rank_has_a_folder_and_loggers_have_that_of_rank_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", rank)
    seen = []
    given = TrainingProfile(
        tmp_path / "out", loggers=[lambda _, folder: seen.append(folder)], skip=1, steps=1
    )
    train(given)
    mine = tmp_path / "out" / f"rank_{rank}"
    assert steps(mine) == [1]
    assert seen == ([mine] if rank == "0" else [])


def test_it_goes_to_another_process_or_is_copied_without_what_is_under_way(tmp_path: Path) -> None:
    given = TrainingProfile(tmp_path / "out", skip=1, steps=1)
    given.start()
    copies = [pickle.loads(pickle.dumps(given)), copy.deepcopy(given)]
    with pytest.warns(CaptureWarning, match="nothing was recorded"):
        given.stop()
    for each in copies:
        assert train(each) == WITHOUT
        assert steps(tmp_path / "out") == [1]


def test_what_cannot_be_meant_is_refused_before_the_training(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="steps is 1 or more and skip 0 or more; found 0 and 5"):
        TrainingProfile(tmp_path / "out", steps=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is not a folder; choose another as folder="):
        TrainingProfile(tmp_path / "file")
    train(TrainingProfile(tmp_path / "out", skip=1, steps=1))
    with pytest.raises(UsageError, match=r"holds a session; .* or give force=True"):
        TrainingProfile(tmp_path / "out")
    train(TrainingProfile(tmp_path / "out", skip=2, steps=1, force=True))
    assert steps(tmp_path / "out") == [2]
