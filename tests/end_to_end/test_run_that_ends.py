"""How ``profiler-ext run`` ends: the script fails, exits, is stopped, or cannot be run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from profiler_ext import cli
from profiler_ext.run import remarks
from profiler_ext.sessions.session import FILE_NAME, load
from tests.end_to_end.processes import environment
from tests.end_to_end.script_runs import HEAD, Run, exits, messages, out, refused, run, steps
from tests.patience import patience_s

__all__ = ["exits", "run"]


def test_the_script_s_own_exit_code_is_kept_and_so_is_the_session(run: Run) -> None:
    assert run("for _ in range(8): step()\nsys.exit(7)") == 7
    assert steps(out()) == [5, 6]


def test_an_exit_with_a_text_prints_it_and_is_1(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("for _ in range(8): step()\nsys.exit('no data left')") == 1
    assert "no data left" in capfd.readouterr().err


def test_a_script_that_never_steps_is_3_and_writes_no_session(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("print(model(torch.ones(2, 4)).shape)") == 3
    assert [path for path in Path("out").iterdir() if path.name == FILE_NAME] == []
    assert "No step boundary found" in capfd.readouterr().err


NO_PLACE = "shutil.rmtree('out'); open('out', 'w').close()"


@pytest.mark.parametrize(
    ("script", "alone", "because"),
    [
        ("print(model(torch.ones(2, 4)).shape)", 3, "No step boundary found"),
        (f"import shutil; {NO_PLACE}\nfor _ in range(8): step()", 2, "out"),
    ],
)
def test_one_rank_of_several_never_ends_the_others_for_what_it_could_not_record(
    run: Run,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    alone: int,
    because: str,
) -> None:
    assert run(script) == alone
    if Path("out").is_file():
        Path("out").unlink()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    capfd.readouterr()
    assert run(script) == 0
    assert because in capfd.readouterr().err


@pytest.mark.parametrize(("ended", "would_do"), [(2, 0), (4, 2)])
def test_a_script_that_ends_before_the_recorded_steps_says_which_skip_would_do(
    run: Run, capfd: pytest.CaptureFixture[str], ended: int, would_do: int
) -> None:
    assert run(f"for _ in range({ended}): step()") == 0
    assert (
        f"the script ended after {ended} steps, before the 5 skipped were over; "
        f"use --skip {would_do}\n"
    ) in capfd.readouterr().err
    assert not (Path("out") / FILE_NAME).exists()
    assert run(f"for _ in range({ended}): step()", "--skip", str(would_do)) == 0
    assert steps(out())[:2] == [would_do, would_do + 1]


@pytest.mark.parametrize(("ended", "whole"), [(5, 0), (6, 1)])
def test_a_script_that_ends_amid_the_recorded_steps_says_how_many_there_are(
    run: Run, capfd: pytest.CaptureFixture[str], ended: int, whole: int
) -> None:
    assert run(f"for _ in range({ended}): step()") == 0
    assert (
        f"the script ended after {ended} steps: {whole} of the 2 asked were recorded whole; "
        "use a smaller --skip\n"
    ) in capfd.readouterr().err


def test_an_exception_leaves_the_script_s_own_traceback_and_a_session(
    run: Run, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch puts the rank before each line, once a test has made a process group.
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    body = """
        def train():
            for n in range(9):
                step()
                if n == 4: raise ValueError("loss is not finite")
        train()
    """
    assert run(body, "--skip", "1", "--steps", "20") == 1
    error = capfd.readouterr().err
    assert f'Traceback (most recent call last):\n  File "{Path.cwd()}/script.py"' in error
    assert "ValueError: loss is not finite" in error
    assert "profiler_ext/" not in error.partition("ValueError")[0]
    assert steps(out())[:4] == [1, 2, 3, 4]


def test_of_a_script_that_fails_before_its_first_step_no_advice_is_given(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("import there_is_no_such_package") == 1
    (line,) = messages(capfd)
    assert line == (
        "profiler-ext: the script ended with exit code 1 after 0 steps; nothing was recorded"
    )


def test_ctrl_c_leaves_a_session_of_what_was_recorded(tmp_path: Path, fresh_torch: Path) -> None:
    body = """
import time
for n in range(4): step()
print("ready", flush=True)
time.sleep(1_200)
"""
    (tmp_path / "script.py").write_text(HEAD + body)
    process = subprocess.Popen(
        [sys.executable, "-m", "profiler_ext", "run", "--skip", "1", "--steps", "50", "script.py"],
        cwd=tmp_path,
        env=environment(fresh_torch),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,
    )
    assert process.stdout is not None
    assert "ready\n" in iter(process.stdout.readline, "")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=patience_s(120))
    assert process.returncode == -signal.SIGINT
    assert error.count("Traceback") == 1  # the script's own
    assert steps(load(tmp_path / "profile_out"))[:3] == [1, 2, 3]


def hear_ctrl_c() -> None:
    """Make a process hear Ctrl-C, which one that a shell started in the background does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.usefixtures("run")
def test_what_cannot_be_run_is_refused_in_a_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script.py").write_text("raise SystemExit('the script must not run')")
    (tmp_path / "file").write_text("kept")
    refused(capfd, "run", "gone.py", because="there is no script gone.py")
    refused(capfd, "run", "-o", "file", "script.py", because="file is not a folder")
    refused(capfd, "run", "-o", "file/under", "script.py", because="is not a folder")
    refused(capfd, "run", "-o", "/proc/no/where", "script.py", because="cannot make /proc/no/where")
    refused(capfd, "run", "--steps", "0", "script.py", because="--steps takes 1 or more")
    refused(capfd, "run", "--skip", "-1", "script.py", because="--skip 0 or more")
    monkeypatch.setattr(os, "access", lambda *_: False)
    refused(capfd, "run", "-o", "locked", "script.py", because="cannot write into locked")
    assert (tmp_path / "file").read_text() == "kept"


def test_a_module_that_is_not_there_is_an_error_of_the_user_s(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "-o", "out", "-m", "no_such_package_of_test.main"]) != 0
    assert "no_such_package_of_test" in capfd.readouterr().err


def test_a_folder_that_is_lost_while_the_script_runs_does_not_end_the_script(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    body = """
        import pathlib, shutil
        shutil.rmtree("out"); pathlib.Path("out").write_text("in the way")
        for _ in range(8): step()
        print("trained to the end")
    """
    assert run(body) == 2
    written = capfd.readouterr()
    assert "trained to the end" in written.out
    assert "Traceback" not in written.err
    assert Path("out").read_text() == "in the way"


def twice_interrupted(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("amid", "kept", "there"),
    [
        ("read_trace", remarks.CUT_SHORT, set[str]()),
        ("save", remarks.CUT_SHORT, set[str]()),
        ("write_exports", remarks.ONLY_SAVED, {FILE_NAME}),
    ],
)
def test_after_a_second_ctrl_c_the_remark_says_what_is_kept(
    run: Run,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    amid: str,
    kept: str,
    there: set[str],
) -> None:
    module = "profiling.torch_views" if amid == "read_trace" else "sessions.output"
    monkeypatch.setattr(f"profiler_ext.{module}.{amid}", twice_interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("for _ in range(8): step()")
    (line,) = messages(capfd)
    assert line.startswith(
        f"profiler-ext: the script ended with exit code 130 after 7 steps; {kept}"
    )
    assert {path.name for path in Path("out").iterdir()} == there
