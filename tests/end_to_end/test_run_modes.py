"""What else ``run`` can be asked for: calls as steps, times, an end, recordings again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_ext import cli
from profiler_ext.sessions.session import load
from tests.end_to_end.script_runs import Run, exits, messages, out, refused, run, steps
from tests.watched import needs_lines

__all__ = ["exits", "run"]

Capture = pytest.CaptureFixture[str]
TRAIN = "for n in range(30): print('step', n); step()"


def kept() -> list[str]:
    return sorted(path.name for path in Path("out").iterdir())


def test_the_script_ends_when_the_recorded_steps_are_written(run: Run, capfd: Capture) -> None:
    body = """
        import atexit
        try:
            for n in range(30): print("step", n, flush=True); step()
        except Exception: print("an exception")
        finally: print("finally")
    """
    assert run(body, "--stop") == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[:8] == [*(f"step {n}" for n in range(7)), "finally"]
    assert steps(out()) == [5, 6]


def test_the_exit_code_of_a_script_that_is_stopped_is_its_own(run: Run) -> None:
    body = """
        try:
            for n in range(30): step()
        finally: sys.exit(9)
    """
    assert run(body, "--stop") == 9
    assert steps(out()) == [5, 6]


def test_a_script_that_catches_the_exit_goes_on(run: Run, capfd: Capture) -> None:
    body = """
        for n in range(9):
            try: step()
            except SystemExit as error: print("caught at", n, error.code)
        print("to the end")
    """
    assert run(body, "--stop") == 0
    written = capfd.readouterr()
    assert written.out.splitlines()[:2] == ["caught at 6 0", "to the end"]
    assert "the script caught the exit of --stop and went on" in written.err


def test_steps_are_recorded_for_a_time(run: Run) -> None:
    body = "import time\nfor n in range(12): step(); time.sleep(0.05)"
    assert run(body, "--skip", "100ms", "--steps", "150ms") == 0
    recorded = steps(out())  # on a busy machine one step may take all of the time
    assert recorded[0] >= 2
    assert recorded == [*range(recorded[0], recorded[0] + len(recorded))]
    assert len(recorded) <= 4


def test_steps_are_recorded_again_and_the_last_sessions_are_kept(run: Run, capfd: Capture) -> None:
    assert run(TRAIN, "--skip", "2", "--every", "10", "--keep", "2") == 0
    assert kept() == ["step_000012", "step_000022"]
    assert [steps(load(Path("out") / name)) for name in kept()] == [[12, 13], [22, 23]]
    printed = capfd.readouterr().out
    assert "wrote 3 sessions and kept the last 2:" in printed
    assert f"profiler-ext report {Path.cwd()}/out/step_000022" in printed
    assert cli.main(["report", "out/step_000012"]) == 0
    refused(capfd, "report", "out", because="out/step_000022, or a trace")
    refused(capfd, "run", "--every", "10", "-o", "out", "script.py", because="add --force")


def test_a_region_that_is_open_over_recordings_does_no_harm(run: Run) -> None:
    body = """
        for epoch in range(8):
            with torch.profiler.record_function("epoch"):
                for n in range(4): step()
    """
    assert run(body, "--skip", "1", "--every", "3", "--keep", "9") == 0
    assert len(kept()) >= 4


# Sixty times as long as the others: what else a machine does may make a step some times as long.
SLOW = """
    import time
    for n in range(40):
        step()
        time.sleep(3 if n == 25 else 0.05)
"""


def test_only_recordings_with_a_slow_step_are_kept(run: Run, capfd: Capture) -> None:
    assert run(SLOW, "--skip", "8", "--slow", "24", "--steps", "4") == 0
    (name,) = kept()
    session = load(Path("out") / name)
    assert 26 in steps(session)
    walls = {step.number: step.wall_ns for step in session.analysis.steps}
    assert max(walls, key=lambda number: walls[number]) == 26
    assert walls[26] > 2_500e6


def test_where_no_step_is_slow_it_says_so(run: Run, capfd: Capture) -> None:
    assert run(TRAIN, "--skip", "5", "--slow", "1000") == 0
    assert kept() == []
    (line,) = messages(capfd)
    assert "9 recordings had no step slow enough, and are not kept" in line


def test_a_slow_step_that_a_region_keeps_from_being_recorded_is_reported(
    run: Run, capfd: Capture
) -> None:
    body = """
    import time
    for epoch in range(2):
        with torch.profiler.record_function("epoch"):
            for n in range(20):
                step()
                time.sleep(3 if (epoch, n) == (1, 15) else 0.05)
    """
    assert run(body, "--skip", "8", "--slow", "24", "--steps", "4") == 0
    assert kept() == []
    unkept, missed = messages(capfd)
    assert "had no step slow enough" in unkept
    assert "1 slow step is in no recording, last step 36: a region" in missed


def test_a_slow_step_may_end_the_script(run: Run, capfd: Capture) -> None:
    body = SLOW + "    print('the end')"
    assert run(body, "--skip", "8", "--slow", "24", "--steps", "4", "--stop") == 0
    assert "the end" not in capfd.readouterr().out
    assert len(kept()) == 1


def test_an_optimizer_that_is_not_there_is_reported_with_those_that_are(
    run: Run, capfd: Capture
) -> None:
    assert run("for n in range(6): step(sgd, adam); step(sgd)", "--step-on", "Nope") == 3
    (line,) = messages(capfd)
    assert "no optimizer of class Nope stepped" in line
    assert "seen were SGD.step() (12 times), Adam.step() (6 times)" in line


def test_advice_that_was_followed_is_not_given_again(run: Run, capfd: Capture) -> None:
    assert run("for n in range(2): step()", "--skip", "0", "--steps", "5") == 0
    (line,) = messages(capfd)
    assert "2 of the 5 asked were recorded whole" in line
    assert "--skip" not in line


def test_a_script_that_ends_before_the_time_says_how_many_steps_there_are(
    run: Run, capfd: Capture
) -> None:
    assert run("for n in range(6): step()", "--skip", "2", "--steps", "1h") == 0
    (line,) = messages(capfd)
    message = (
        "the script ended after 6 steps, before the 3600s asked were over: 4 were recorded whole"
    )
    assert line.endswith(message)
    assert steps(out())[:4] == [2, 3, 4, 5]


def test_a_script_that_fails_before_it_imports_torch_says_so_in_one_line(
    run: Run, capfd: Capture
) -> None:
    assert run("raise SystemExit(5)") == 5
    (line,) = messages(capfd)
    assert line.endswith("the script ended with exit code 5 after 0 steps; nothing was recorded")


EVALUATES = """
    class Net(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
        def forward(self, x): return torch.relu(self.inner(x))
    net, loss = Net(model), torch.nn.MSELoss()
    def evaluate(x):
        return loss(net(x), x).item()
    for n in range(8): evaluate(torch.ones(2, 4))
"""


@needs_lines
@pytest.mark.parametrize("step_on", ["forward", "forward:Net", "forward:Linear", ":evaluate"])
def test_each_call_of_a_model_or_function_is_a_step(run: Run, step_on: str) -> None:
    assert run(EVALUATES, "--step-on", step_on) == 0
    assert steps(out()) == [5, 6]
    launched = out().launches()
    calls = launched[launched.name == "aten::linear"].groupby("step").size()
    assert calls.to_dict() == {5: 1, 6: 1}


@needs_lines
def test_calls_that_raise_end_no_step(run: Run) -> None:
    body = """
        class Odd(torch.nn.Module):
            def forward(self, n):
                if n % 2: raise ValueError(n)
                return model(torch.ones(2, 4))
        odd, caught = Odd(), 0
        for n in range(12):
            try: odd(n)
            except ValueError: caught += 1
        print("caught", caught)
    """
    assert run(body, "--step-on", "forward", "--skip", "1", "--steps", "9") == 0
    assert [step.number for step in out().analysis.steps][:5] == [1, 2, 3, 4, 5]


@needs_lines
@pytest.mark.parametrize("step_on", ["forward", ":evaluate"])
def test_a_script_without_training_is_ended_too(run: Run, capfd: Capture, step_on: str) -> None:
    body = EVALUATES + "    print('the end')"
    assert run(body, "--step-on", step_on, "--stop") == 0
    assert "the end" not in capfd.readouterr().out
    assert steps(out()) == [5, 6]


@needs_lines
@pytest.mark.parametrize(
    ("step_on", "unmet"),
    [
        ("forward:Nope", "no module of class Nope was called"),
        (":nope", ":nope was not called, or never returned"),
        ("tests.nope:nope", "tests.nope:nope was not called"),
    ],
)
def test_what_is_never_called_is_named(run: Run, capfd: Capture, step_on: str, unmet: str) -> None:
    assert run(EVALUATES, "--step-on", step_on) == 3
    (line,) = messages(capfd)
    assert unmet in line


def test_a_compiled_function_is_a_forward_in_any_python(run: Run) -> None:
    body = """
        @torch.compile(backend="eager")
        def generate(x): return model(x).relu()
        with torch.no_grad():
            for n in range(8): generate(torch.ones(2, 4))
    """
    assert run(body, "--step-on", "forward") == 0
    assert steps(out()) == [5, 6]


@needs_lines
def test_python_is_left_as_it_was_found(run: Run) -> None:
    import sys

    assert run(EVALUATES, "--step-on", "forward") == 0
    monitoring = sys.monitoring
    assert [monitoring.get_tool(number) for number in (3, 4)] == [None, None]
