"""What is thrown into the thread of a script while a finding is judged is the script's own."""

import ctypes
import threading

import pytest

from profiler_ext import findings
from profiler_ext.findings import Rule
from tests.end_to_end.script_runs import Run, exits, out, run, steps

__all__ = ["exits", "run"]

THROWING = """
def judging(facts):
    throw(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(TimeoutError))
    return sorted(facts.analysis.steps, key=id)
"""


@pytest.fixture(autouse=True)
def thrown(monkeypatch: pytest.MonkeyPatch) -> None:
    throw = ctypes.pythonapi.PyThreadState_SetAsyncExc
    names = {"ctypes": ctypes, "threading": threading, "throw": throw}
    exec(THROWING, names | {"__name__": "profiler_ext.findings.rules.slow"}, made := {})
    monkeypatch.setattr(findings, "RULES", (Rule("slow", "", "", "", "", "", made["judging"]),))


def test_amid_the_script_it_comes_out_of_the_step_and_the_session_is_there(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    body = """
        ended = 0
        try:
            for _ in range(8):
                step()
                ended += 1
        except TimeoutError:
            print("late after", ended)
            sys.exit(7)
    """
    assert run(body) == 7
    assert "late after 6\n" in capfd.readouterr().out
    assert steps(out()) == [5, 6]


def test_after_the_script_its_exit_code_is_kept_and_the_session_is_there(run: Run) -> None:
    assert run("for _ in range(6): step()\nsys.exit(7)") == 7
    assert steps(out()) == [5]
