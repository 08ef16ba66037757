"""``profiler-ext run`` profiles a script that was never touched, and gets out of its way."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
import torch.profiler
from torch.optim.optimizer import _global_optimizer_post_hooks

from profiler_ext import cli, running
from profiler_ext.session import FILE_NAME, Session, load
from tests.end_to_end.processes import environment

HEAD = """\
import sys
import torch
model = torch.nn.Linear(4, 4)
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
adam = torch.optim.Adam(model.parameters(), lr=0.1)
def step(*optimizers):
    model(torch.ones(2, 4)).sum().backward()
    for optimizer in optimizers or [sgd]:
        optimizer.step()
"""
FILES = {
    "attribution.csv",
    "coverage.csv",
    "graphs.csv",
    "launches.csv",
    "report.html",
    "session.pt.trace.json.gz",
    "trace.pftrace",
}

Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_torch: Path) -> Run:
    """Write a script and run it in this process, into ``out``."""
    monkeypatch.chdir(tmp_path)

    def run(body: str, *options: str, arguments: tuple[str, ...] = ()) -> int:
        (tmp_path / "script.py").write_text(HEAD + dedent(body))
        return cli.main(["run", *options, "-o", "out", "script.py", *arguments])

    return run


def out() -> Session:
    return load("out")


def steps(session: Session) -> list[int]:
    return [step.number for step in session.analysis.steps]


def test_the_script_sees_its_own_arguments_and_its_output_is_kept(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    before = (list(sys.argv), list(sys.path), sys.modules["__main__"])
    body = """
        print("script:", sys.argv, __name__, sys.path[0])
        for _ in range(6): step()
    """
    assert run(body, arguments=("--steps", "9", "-o", "x")) == 0
    assert (list(sys.argv), list(sys.path), sys.modules["__main__"]) == before
    first = capfd.readouterr().out.splitlines()[0]
    assert first == f"script: ['script.py', '--steps', '9', '-o', 'x'] __main__ {Path.cwd()}"


def test_a_run_writes_all_files_and_says_where(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("for _ in range(6): step()") == 0
    assert {path.name for path in Path("out").iterdir()} == FILES
    printed = capfd.readouterr().out
    assert [name for name in FILES if name not in printed] == []
    assert "wall time of the steps" in printed


def test_by_default_two_steps_are_recorded_after_three(run: Run) -> None:
    assert run("for _ in range(9): step()") == 0
    session = out()
    assert steps(session) == [3, 4]
    assert session.recording.settings.step_source == "Optimizer.step"
    assert session.recording.settings.command[0] == "script.py"


@pytest.mark.parametrize(
    ("skip", "asked", "found"), [(0, 3, [0, 1, 2]), (2, 1, [2]), (1, 4, [1, 2, 3, 4])]
)
def test_skip_and_steps_choose_what_is_recorded(
    run: Run, skip: int, asked: int, found: list[int]
) -> None:
    assert run("for _ in range(9): step()", "--skip", str(skip), "--steps", str(asked)) == 0
    assert steps(out()) == found


def test_torch_is_left_as_it_was_found(run: Run) -> None:
    step, hooks = torch.profiler.profile.step, dict(_global_optimizer_post_hooks)
    evaluator = vars(torch._dynamo.eval_frame)["_maybe_set_eval_frame"]
    assert run("for _ in range(6): step()") == 0
    assert torch.profiler.profile.step is step
    assert dict(_global_optimizer_post_hooks) == hooks
    assert vars(torch._dynamo.eval_frame)["_maybe_set_eval_frame"] is evaluator


def test_the_first_optimizer_ends_a_step_and_others_do_not(run: Run) -> None:
    assert run("for _ in range(6): step(sgd, adam)", "--skip", "1", "--steps", "10") == 0
    assert sgd_steps_in_each_step() == [1, 1, 1, 1, 1]


def test_step_on_names_the_optimizer_that_ends_a_step(run: Run) -> None:
    body = """
        for _ in range(4):
            step(sgd); step(sgd, adam)
    """
    assert run(body, "--step-on", "Adam", "--skip", "1", "--steps", "2") == 0
    assert sgd_steps_in_each_step() == [2, 2]


def sgd_steps_in_each_step() -> list[int]:
    session = out()
    events = session.recording.trace.events
    starts = events.start_ns[events.name.where("Optimizer.step#SGD.step")]
    whole = [step for step in session.analysis.steps if step.wall_ns > 0]
    counts = [int(((starts >= s.start_ns) & (starts < s.end_ns)).sum()) for s in whole]
    return [count for count in counts if count]


def test_a_script_that_steps_a_profiler_of_its_own_ends_steps_so(run: Run) -> None:
    body = """
        never = torch.profiler.schedule(wait=100, warmup=1, active=1)
        own = torch.profiler.profile(schedule=never, acc_events=True)
        for _ in range(5):
            step(); step(); own.step()
    """
    assert run(body, "--skip", "3", "--steps", "2") == 0
    assert out().recording.settings.step_source == "prof.step"
    assert sgd_steps_in_each_step() == [2, 2]


def test_the_script_s_own_exit_code_is_kept_and_so_is_the_session(run: Run) -> None:
    assert run("for _ in range(6): step()\nsys.exit(7)") == 7
    assert steps(out()) == [3, 4]


def test_an_exit_with_a_text_prints_it_and_is_1(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("for _ in range(6): step()\nsys.exit('no data left')") == 1
    assert "no data left" in capfd.readouterr().err


def test_a_script_that_never_steps_is_3_and_writes_no_session(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("print(model(torch.ones(2, 4)).shape)") == 3
    assert [path for path in Path("out").iterdir() if path.name == FILE_NAME] == []
    assert "the script never stepped" in capfd.readouterr().err


def test_without_skipping_a_script_that_never_steps_is_recorded_whole(run: Run) -> None:
    assert run("model(torch.ones(2, 4))", "--skip", "0") == 3
    assert "aten::linear" in set(out().attribution().aten_op)


def test_a_script_that_ends_before_the_recorded_steps_says_which_skip_would_do(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("for _ in range(2): step()") == 0
    assert (
        "the script ended after 2 steps, before the 3 skipped were over" in capfd.readouterr().err
    )
    assert not (Path("out") / FILE_NAME).exists()


def test_a_script_that_never_compiles_is_an_eager_session_with_a_remark(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("for _ in range(6): step()") == 0
    assert "the script compiled nothing" in capfd.readouterr().err
    session = out()
    assert set(session.launches().kind) == {"eager"}
    assert len(session.graphs()) == 0
    assert {"forward", "backward", "optimizer"} <= set(session.by_phase().phase)


def test_an_exception_leaves_the_script_s_own_traceback_and_a_session(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    body = """
        def train():
            for n in range(9):
                step()
                if n == 4: raise ValueError("loss is not finite")
        train()
    """
    assert run(body, "--skip", "1", "--steps", "20") == 1
    error = capfd.readouterr().err
    assert 'Traceback (most recent call last):\n  File "script.py"' in error
    assert "ValueError: loss is not finite" in error
    assert "profiler_ext/" not in error.partition("ValueError")[0]
    assert steps(out())[:4] == [1, 2, 3, 4]


def test_of_a_script_that_fails_before_its_first_step_no_advice_is_given(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("import there_is_no_such_package") == 1
    assert [line for line in capfd.readouterr().err.splitlines() if "profiler-ext:" in line] == [
        "profiler-ext: the script ended with exit code 1 after 0 steps; nothing was recorded"
    ]


def test_ctrl_c_leaves_a_session_of_what_was_recorded(tmp_path: Path, fresh_torch: Path) -> None:
    body = """
import time
for n in range(4): step()
print("ready", flush=True)
time.sleep(120)
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
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in error
    assert steps(load(tmp_path / "profile_out"))[:3] == [1, 2, 3]


def hear_ctrl_c() -> None:
    """Make a process hear Ctrl-C, which one that a shell started in the background does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_module_of_a_package_runs_with_its_arguments(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "trainer_of_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    body = "print('module:', sys.argv[1:], __name__, __package__)\nfor _ in range(6): step()\n"
    (package / "main.py").write_text(HEAD + body)
    command = ["run", "-o", "out", "-m", "trainer_of_test.main", "--lr", "3"]
    assert cli.main(command) == 0
    assert "module: ['--lr', '3'] __main__ trainer_of_test" in capfd.readouterr().out
    assert steps(out()) == [3, 4]


def refused(capfd: pytest.CaptureFixture[str], *command: str, because: str) -> None:
    """The command must fail with one sentence and without a traceback."""
    capfd.readouterr()
    assert cli.main(list(command)) == 2
    written = capfd.readouterr()
    assert written.out == ""
    assert written.err.startswith("profiler-ext: ")
    assert written.err.count("\n") == 1
    assert because in written.err


def test_a_session_that_is_there_is_only_replaced_by_force(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("for _ in range(6): step()") == 0
    kept = (Path("out") / FILE_NAME).read_bytes()
    refused(capfd, "run", "-o", "out", "script.py", because="add --force")
    assert (Path("out") / FILE_NAME).read_bytes() == kept
    assert run("for _ in range(6): step()", "--steps", "1", "--force") == 0
    assert steps(out()) == [3]


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
    monkeypatch.setattr(running.os, "access", lambda *_: False)
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
