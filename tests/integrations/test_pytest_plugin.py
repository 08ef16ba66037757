"""The pytest plugin: a marked test is a step, and fails by its limits with what took the time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from profiler_ext import load
from profiler_ext.integrations.pytest_plugin import Limits, _check

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

runs = []

@pytest.fixture
def step():
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
    return lambda: model(torch.ones(512, 64)).sum().backward()

@pytest.mark.profile_ext(max_ms=60_000, skip=3, steps=2)
def test_fast(step):
    runs.append(step())

def test_that_the_body_is_the_step():
    assert len(runs) == 5

@pytest.mark.profile_ext(max_ms=0.001)
def test_slow(step):
    step()

@pytest.mark.profile_ext(max_ms=60_000, skip=1, steps=1)
def test_session(step, profile_ext):
    session = profile_ext(step)
    assert len(session.analysis.steps) == 1
    assert "aten::mm" in set(session.by_op().aten_op)

@pytest.mark.profile_ext(max_ms=0.001)
def test_slow_step(step, profile_ext):
    with pytest.raises(BaseException, match="above max_ms=0.001"):
        profile_ext(step)

@pytest.mark.profile_ext
def test_own_failure():
    raise ValueError("its own")

@pytest.mark.profile_ext
def test_uncalled(profile_ext):
    pass

@pytest.mark.profile_ext(max_m=1)
def test_mistyped():
    pass

@pytest.mark.profile_ext(no_finding="launch_bund")
def test_no_rule():
    pass

@pytest.mark.profile_ext(steps=0)
def test_no_steps():
    pass
"""


def pytest_run(folder: Path, *words: str) -> list[str]:
    """Run pytest with the plugin alone; returns its lines."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "profiler_ext.integrations.pytest_plugin",
         "--strict-markers", "-rA", "-q", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                          "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("marked")
    (folder / "test_marked.py").write_text(TESTS)
    return pytest_run(folder)


def summary(lines: list[str], outcome: str) -> dict[str, str]:
    """Return the tests of an outcome, each with its message."""
    found = [line.split(" - ") for line in lines if line.startswith(f"{outcome} ")]
    return {head.rpartition("::")[2]: " - ".join(rest) for head, *rest in found}


def test_the_body_or_what_the_fixture_is_called_with_is_the_step(lines: list[str]) -> None:
    assert {*summary(lines, "PASSED")} == {
        *("test_fast", "test_that_the_body_is_the_step", "test_session", "test_slow_step"),
        "test_uncalled",
    }


def test_a_step_above_its_limit_fails_with_what_took_the_time(lines: list[str]) -> None:
    failed = summary(lines, "FAILED")
    assert {*failed} == {"test_slow", "test_own_failure"}
    assert failed["test_slow"].startswith("Failed: step time ")
    first = next(n for n, line in enumerate(lines) if " is above max_ms=0.001" in line)
    assert lines[first + 1] in (
        "top ops by device time in a step:",
        "top lines by device time in a step:",
    )
    shares = [float(line.split("%")[0].split()[-1]) for line in lines[first + 2 : first + 4]]
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 100
    assert failed["test_own_failure"] == "ValueError: its own"


def test_a_marker_that_makes_no_sense_is_an_error_before_the_test(lines: list[str]) -> None:
    errors = summary(lines, "ERROR")
    assert errors["test_mistyped"].startswith("Failed: the marker got an unexpected keyword")
    assert errors["test_no_rule"].startswith("Failed: there is no rule 'launch_bund'; the rules")
    assert errors["test_no_steps"] == (
        "Failed: the marker's skip must be 0 or more, its steps 1 or more"
    )
    assert errors["test_uncalled"] == (
        "Failed: the test never called its fixture profile_ext with a step"
    )
    assert len(errors) == 4


def test_tests_without_the_marker_import_neither_torch_nor_pandas(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(
        "import sys\n"
        "def test_plain():\n"
        "    assert not {'torch', 'pandas', 'numpy', 'profiler_ext.sessions'} & {*sys.modules}\n"
    )
    assert pytest_run(tmp_path)[-1].startswith("1 passed")


FLAWED = ROOT / "tests/fixtures/h200/findings/unlike_siblings.session.pt.trace.json.gz"


def failure(limits: Limits) -> str:
    with pytest.raises(pytest.fail.Exception) as failed:
        _check(load(FLAWED), limits)
    return str(failed.value)


def test_the_step_time_is_the_one_without_profiling() -> None:
    reported = failure(Limits(max_ms=80)).splitlines()
    assert reported[0] == "step time 81 ms (82.6 ms while profiling) is above max_ms=80"
    assert reported[1] == "top lines by device time in a step:"
    _check(load(FLAWED), Limits(max_ms=81.5))


@pytest.mark.parametrize("named", [True, "uncompiled", ["graph_break", "uncompiled"]])
def test_a_recommendation_that_is_not_wanted_fails(named: bool | str | list[str]) -> None:
    reported = failure(Limits(no_finding=named))
    assert "\n  16.6 ms 20.5% uncompiled: unfused eager kernels (" in reported
    assert "\n      try: torch.compile the model with the loss, " in reported


@pytest.mark.parametrize("named", [False, "graph_break", ()])
def test_other_recommendations_do_not(named: bool | str | tuple[str, ...]) -> None:
    _check(load(FLAWED), Limits(no_finding=named))
