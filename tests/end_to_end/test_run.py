"""``profiler-ext run`` profiles a script that was never touched, and gets out of its way."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch.profiler
from torch.optim.optimizer import _global_optimizer_post_hooks

from profiler_ext import cli
from profiler_ext.findings.unprofiled_step import MIN_UNPROFILED_STEPS
from profiler_ext.sessions.session import FILE_NAME, load
from tests.end_to_end.script_runs import HEAD, Run, exits, messages, out, refused, run, steps
from tests.watched import needs_lines

__all__ = ["exits", "run"]

FILES = {
    "attribution.csv",
    "by_step.csv",
    "communication.csv",
    "compiles.csv",
    "coverage.csv",
    "findings.csv",
    "fusions.csv",
    "graphs.csv",
    "idle_by_cause.csv",
    "idle_by_line.csv",
    "launches.csv",
    "report.html",
    "session.pt.trace.json.gz",
    "trace.pftrace",
}


def test_the_script_sees_its_own_arguments_and_its_output_is_kept(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    body = """
        print("script:", sys.argv, __name__, sys.path[0])
        for _ in range(8): step()
    """
    assert run(body, arguments=("--steps", "9", "-o", "x")) == 0
    assert sys.modules["__main__"].__file__ == str(Path.cwd() / "script.py")
    first = capfd.readouterr().out.splitlines()[0]
    assert first == f"script: ['script.py', '--steps', '9', '-o', 'x'] __main__ {Path.cwd()}"


def test_a_run_writes_all_files_and_says_where(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("for _ in range(8): step()") == 0
    assert {path.name for path in Path("out").iterdir()} == FILES
    printed = capfd.readouterr().out
    assert "CPU in operators" in printed
    files, following = printed.splitlines()[-2:]
    others = "trace.pftrace, session.pt.trace.json.gz, report.html"
    assert files == f"written to {Path('out').absolute()}: {others}, 11 tables (.csv)"
    by_line = "explain out script.py:7 | " if hasattr(sys, "monitoring") else ""
    more = "" if by_line else " | report out --verbose"
    assert following == f"next: profiler-ext open out | {by_line}report out --by module{more}"


def test_with_verbose_a_run_describes_each_file(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("for _ in range(8): step()", "--verbose") == 0
    printed = capfd.readouterr().out
    assert [name for name in FILES if f"\n  {name} " not in printed] == []


def test_a_folder_whose_name_is_not_utf_8_is_written_as_any_other(run: Run) -> None:
    assert run("for _ in range(8): step()") == 0
    assert cli.main(["run", "-o", "of\udcff", "script.py", "of\udcff"]) == 0
    assert {path.name for path in Path("of\udcff").iterdir()} == FILES
    assert load("of\udcff").recording.settings.command == ("script.py", "of\\udcff")


@pytest.mark.parametrize("folder", ["of\udcff", "nowhere"])
def test_where_torch_cannot_write_into_the_temporary_folder_the_session_is_there(
    run: Run, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    Path("of\udcff").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(Path(folder).resolve()))
    assert run("for _ in range(8): step()") == 0
    assert {path.name for path in Path("out").iterdir()} == FILES
    assert list(Path().glob("**/profiler_ext-*")) == []


def test_by_default_two_steps_are_recorded_after_five_of_which_three_are_timed(run: Run) -> None:
    assert run("for _ in range(9): step()") == 0
    session = out()
    assert len(session.recording.settings.unprofiled_steps_ns) == MIN_UNPROFILED_STEPS
    assert steps(session) == [5, 6]
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


def test_the_folder_is_where_it_was_though_the_script_goes_elsewhere(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
        import os
        os.mkdir("elsewhere"); os.chdir("elsewhere")
        for _ in range(8): step()
    """
    assert run(body) == 0
    monkeypatch.chdir(tmp_path)
    assert steps(out()) == [5, 6]
    assert list(Path("elsewhere").iterdir()) == []


def test_torch_is_left_as_it_was_found(run: Run) -> None:
    step, hooks = torch.profiler.profile.step, dict(_global_optimizer_post_hooks)
    evaluator = vars(torch._dynamo.eval_frame)["_maybe_set_eval_frame"]
    assert run("for _ in range(8): step()") == 0
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


def test_without_skipping_a_script_that_never_steps_is_recorded_whole(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("model(torch.ones(2, 4))", "--skip", "0") == 0
    assert messages(capfd) == []
    assert "aten::linear" in set(out().attribution().aten_op)


def test_a_script_that_never_compiles_has_a_report_that_complains_of_nothing(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("for _ in range(8): step()") == 0
    output = capfd.readouterr()
    report, found, _ = output.out.partition("written to")
    assert found and "compil" not in report + output.err
    session = out()
    assert set(session.launches().kind) == {"eager"}
    assert len(session.graphs()) == 0
    assert {"forward", "backward", "optimizer"} <= set(session.by_phase().phase)


@needs_lines
def test_eager_work_of_a_script_is_attributed_to_its_lines(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("for _ in range(8): step()") == 0
    (eager,) = (line for line in capfd.readouterr().out.splitlines() if line.startswith("eager "))
    assert eager.endswith(" 100.0% attributed to source")
    session = out()
    session.assert_coverage(0.99, scope="all")
    for table in (session.by_line(), session.idle_by_line()):
        assert {Path(file).name for file in table.file.dropna()} == {"script.py"}


@needs_lines
def test_no_code_of_this_package_is_a_line_of_the_program(run: Run, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(HEAD + "for _ in range(8): step()")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    command = [sys.executable, "-P", "-m", "profiler_ext", "run", "-o", "out", "script.py"]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    python = out().recording.python
    assert python is not None
    assert {Path(each.file).name for each in python.functions} == {"script.py"}


def test_without_lines_the_step_time_breakdown_says_why_and_the_notes_what_to_do(
    run: Run, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "ATen ops only: lines were switched off"
    assert run("for _ in range(8): step()", "--no-lines", "--no-source") == 0
    assert message in capfd.readouterr().out
    assert [gap.reason for gap in out().recording.gaps] == ["lines_off", "source_off"]
    monkeypatch.setenv("PROFILER_EXT_LINES", "0")
    assert run("for _ in range(8): step()", "--force") == 0
    assert message in capfd.readouterr().out
    session = out()
    session.assert_coverage(1.0, level="op", scope="all")
    (note,) = session.notes
    assert "leave `lines=False`, `--no-lines` or `PROFILER_EXT_LINES=0` out" in note


@pytest.mark.parametrize(("option", "expected"), [((), False), (("--shapes",), True)])
def test_shapes_of_eager_ops_are_recorded_when_asked_for(
    run: Run, option: tuple[str, ...], expected: bool
) -> None:
    assert run("for _ in range(8): step()", *option) == 0
    raw = out().recording.trace.raw
    assert any(b'"Input Dims"' in raw[position] for position in range(len(raw))) is expected


def test_a_module_of_a_package_runs_with_its_arguments(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "trainer_of_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    body = "print('module:', sys.argv[1:], __name__, __package__)\nfor _ in range(8): step()\n"
    (package / "main.py").write_text(HEAD + body)
    command = ["run", "-o", "out", "-m", "trainer_of_test.main", "--lr", "3"]
    assert cli.main(command) == 0
    assert "module: ['--lr', '3'] __main__ trainer_of_test" in capfd.readouterr().out
    assert steps(out()) == [5, 6]


def test_a_session_that_is_there_is_only_replaced_by_force(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("for _ in range(8): step()") == 0
    kept = (Path("out") / FILE_NAME).read_bytes()
    refused(capfd, "run", "-o", "out", "script.py", because="add --force")
    assert (Path("out") / FILE_NAME).read_bytes() == kept
    assert run("for _ in range(8): step()", "--steps", "1", "--force") == 0
    assert steps(out()) == [5]


def test_what_dynamo_gives_up_at_our_hook_of_steps_is_no_break_of_the_program(run: Run) -> None:
    body = """
        update = torch.compile(sgd.step)
        for _ in range(8):
            model(torch.ones(2, 4)).sum().backward()
            update()
    """
    assert run(body) == 0
    compilations = out().recording.compiles
    assert compilations
    reported = [each for each in compilations if each.failure or len(each.breaks) > 0]
    reasons = [broken.reason for each in reported for broken in each.breaks]
    assert [each.failure for each in reported if each.failure] == []
    assert [reason for reason in reasons if "profiler_ext" in reason] == []
