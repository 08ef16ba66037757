"""A question goes on where it stopped, and what breaks is a row; sessions are read as they are."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import profiler_ext
from profiler_ext.inside.selection import chosen_kernels
from profiler_ext.records.inside import InsideRoute, MeasuredKernel, MeasuredSite
from profiler_ext.sessions.session import Session
from tests.exporters.explained import gpt
from tests.inside.test_selection import sources
from verification.inside import __main__ as command
from verification.inside import looking, models, running
from verification.inside.looking import by_model, kernel_rows, ncu_command
from verification.inside.profiled import session_row
from verification.inside.running import TINY, Question, Row, answer, to_run
from verification.rows import gpus_of


def options_of(out: Path, **changed: Any) -> Namespace:
    given = {"only": [], "minutes": 1.0, "gpus": 2, "again": False, "tiny": True, "out": out}
    return Namespace(**(given | changed))


def table(rows: Sequence[Row]) -> str:
    return "".join(f"{row['name']}: {row.get('failure', row.get('value'))}\n" for row in rows)


QUESTION = Question("asked", ("one", "two", "three"), lambda *_: {}, table, 30, 5)


class Programs:
    """Stands in for processes: writes a row, breaks, or does not end."""

    def __init__(self, **ends: str) -> None:
        self.ends, self.ran = ends, list[str]()
        self.gpus = set[str]()

    def __call__(self, words: Sequence[str], environment: Any, printed: Any, seconds: float) -> str:
        name = words[words.index("--one") + 1]
        self.ran.append(name)
        self.gpus.add(environment["CUDA_VISIBLE_DEVICES"])
        printed.write(f"{name} says why\n")
        if end := self.ends.get(name):
            return end
        Path(words[words.index("--row") + 1]).write_text(json.dumps({"value": name.upper()}))
        return ""


def test_a_program_that_breaks_is_a_row_and_is_run_again_after_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = Programs(two="two exited with 1")
    monkeypatch.setattr(running, "run_within", programs)
    assert answer(QUESTION, options_of(tmp_path)) == 1
    assert sorted(programs.ran) == ["one", "three", "two"]
    kept = {row["name"]: row for row in json.loads((tmp_path / "asked.json").read_text())}
    assert kept["two"]["failure"] == "two exited with 1"
    assert kept["two"]["log"] == "two says why\n"
    assert (tmp_path / "asked.md").read_text() == "one: ONE\ntwo: two exited with 1\nthree: THREE\n"
    repaired = Programs()
    monkeypatch.setattr(running, "run_within", repaired)
    assert answer(QUESTION, options_of(tmp_path)) == 0
    assert repaired.ran == ["two"]
    assert answer(QUESTION, options_of(tmp_path, only=["one"])) == 0
    assert repaired.ran == ["two", "one"]
    assert answer(QUESTION, options_of(tmp_path, again=True)) == 0
    assert repaired.ran == ["two", "one"]
    assert capsys.readouterr().out.endswith("one: ONE\ntwo: TWO\nthree: THREE\n\n")


def test_what_the_minutes_ended_is_no_row_and_what_its_own_limit_ended_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    late = Programs(one="not done within 9 s: one")
    monkeypatch.setattr(running, "run_within", late)
    assert answer(QUESTION, options_of(tmp_path, minutes=0.2, gpus=1)) == 1
    assert late.ran == ["one", "two", "three"]
    assert "Not run yet: one." in capsys.readouterr().out
    assert answer(QUESTION, options_of(tmp_path, minutes=1.0)) == 1
    assert late.ran[3:] == ["one"]
    assert "one: not done within 9 s: one" in (tmp_path / "asked.md").read_text()
    assert answer(QUESTION, options_of(tmp_path, minutes=0.05)) == 1
    assert late.ran[4:] == []


def test_what_has_no_row_comes_before_what_failed() -> None:
    rows: dict[str, Row] = {"a": {"failure": "x"}, "b": {"value": 1}}
    assert to_run(("a", "b", "c"), [], rows) == ["c", "a"]
    assert to_run(("a", "b", "c"), ["b"], rows) == ["b"]


def test_devices_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus_of(2) == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,7")
    assert gpus_of(2) == ["3", "5"]


def test_a_command_is_asked_to_end_and_says_so(tmp_path: Path) -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('ended')))\n"
        "print('began', flush=True)\n"
        "time.sleep(60)"
    )
    with (tmp_path / "log").open("w") as printed:
        error = running.run_within([sys.executable, "-c", script], os.environ, printed, 2)
        assert running.run_within([sys.executable, "-c", "exit(3)"], os.environ, printed, 60)
    assert error.startswith("not done within 2 s: ")
    assert (tmp_path / "log").read_text() in ("began\nended\n", "")  # on a machine this slow


@pytest.mark.parametrize("name", ["planted", "ncu", "model", "profile"])
def test_what_a_program_raises_is_its_row(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> Row:
        raise OSError("no device")

    question = next(each for each in command.QUESTIONS if each.name == name)
    broken = replace(question, row=breaks)
    monkeypatch.setattr(command, "QUESTIONS", (broken,))
    row = tmp_path / "row.json"
    assert command.main([name, "--one", question.names[0], "--row", str(row)]) == 0
    assert json.loads(row.read_text()) == {"failure": "OSError: no device"}


def test_a_name_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["profile", "--only", "longest", "nothing"]) == 2
    assert "there is no nothing; there are longest, line," in capsys.readouterr().out


def test_a_tiny_model_trains(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["models", "gpt", "--tiny", "--steps", "2"])
    assert models.main() == 0
    assert capsys.readouterr().out.startswith("gpt: 2 steps, loss ")


@pytest.mark.whole
@pytest.mark.parametrize("name", models.MODELS)
def test_each_tiny_model_trains(name: str) -> None:
    if library := models.LIBRARIES.get(name):
        pytest.importorskip(library, reason="the model is a library's")
    assert looking._ran_tiny(name) == TINY


def measured() -> Session:
    """A recorded session, of whose kernels the first node takes all the time."""
    kernels = tuple(
        MeasuredKernel(
            each.kernel, InsideRoute.SAMPLES, each.launches, each.total_ns, each.step_ns,
            sites=tuple(
                MeasuredSite(
                    at.graph, at.site.ordinal, at.site.nodes,
                    (each.step_ns, *(0 for _ in at.site.nodes[1:])),
                )
                for at in each.sites
            ),
        )
        for each in chosen_kernels(gpt().analysis, sources(), "", 4)
    )  # fmt: skip
    recording = gpt().recording
    return gpt().with_recording(replace(recording, measured=kernels))


def test_tables_of_a_session_have_what_was_measured_and_nothing_else_passes() -> None:
    session = measured()
    row = session_row(session)
    assert (row["kernels"], row["measured"], row["wrong"]) == (4, 4, [])
    own = {each.kernel for each in session.recording.measured}
    assert row["launches"] == session.launches()["kernel"].isin(own).sum()
    assert session_row(gpt())["wrong"] == ["no kernel has measured shares"]
    first, *others = session.recording.measured
    moved = replace(first, sites=tuple(
        replace(each, times_ns=(*each.times_ns[1:], each.times_ns[0])) for each in first.sites
    ))  # fmt: skip
    session.recording = replace(session.recording, measured=(moved, *others))
    assert any(
        "is shared otherwise than measured" in each for each in session_row(session)["wrong"]
    )


def test_rows_of_kernels_have_measured_and_modelled_times_of_each_node() -> None:
    session = measured()
    rows = list(kernel_rows(session, session.recording.measured))
    for row, kernel in zip(rows, session.recording.measured, strict=True):
        assert sum(each["measured_ns"] for each in row["nodes"]) == kernel.step_ns
        assert sum(each["modelled_ns"] for each in row["nodes"]) == pytest.approx(kernel.step_ns)
        assert [each["node"] for each in row["nodes"]] == list(kernel.sites[0].nodes)
    assert any(each["line"] for row in rows for each in row["nodes"])


def test_a_model_is_measured_by_the_command_of_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = list[Sequence[str]]()

    def inside(words: Sequence[str], *_: object) -> str:
        ran.append(words)
        measured().save(words[words.index("-o") + 1])
        return ""

    monkeypatch.setattr(looking, "run_within", inside)
    options = Namespace(tiny=False, knock_out=True, seconds=400.0)
    row = by_model("gpt", options)
    assert len(row["kernels"]) == 4
    (words,) = ran
    assert words[words.index("--route") + 1] == "both"
    assert list(words[words.index("--") :]) == ["--", "-m", "verification.inside.models", "gpt"]
    monkeypatch.setattr(looking, "run_within", lambda *_: "it exited with 2")
    with pytest.raises(RuntimeError, match="it exited with 2"):
        by_model("gpt", options)


def test_ncu_is_asked_for_the_named_kernels_between_the_marks(tmp_path: Path) -> None:
    words = ncu_command(["triton_a", "triton_b"], tmp_path / "cold.ncu-rep")
    assert "regex:^(triton_a|triton_b)$" in words
    assert words[words.index("--cache-control") + 1] == "all"
    assert words[words.index("--profile-from-start") + 1] == "off"
    assert words[-1] == str(tmp_path / "cold")
    assert profiler_ext.__version__
