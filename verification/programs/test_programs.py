"""A program ends, prints and trains with us as it does without us, and its session is there."""

from collections.abc import Iterator

import pytest

from verification.programs.program import Program
from verification.programs.runner import Runner
from verification.programs.table import CALLS, FAST, MONITORS, PROGRAMS

LONG = pytest.mark.whole  # a program that a signal ends waits for it in each mode
CHOSEN = [
    pytest.param(program, marks=[LONG] * program.name.startswith("signals"), id=program.name)
    for program in PROGRAMS
    if program.name in FAST
]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """One process that has imported torch, and one cache, for all programs."""
    made = Runner(tmp_path_factory.mktemp("of") / "programs")
    yield made
    made.close()


@pytest.mark.parametrize("program", CHOSEN)
def test_a_program_does_with_us_what_it_does_without_us(runner: Runner, program: Program) -> None:
    found = runner.differences(program)
    assert found == {mode: [] for mode in found}
    assert found


def test_every_program_has_a_name_of_its_own() -> None:
    names = [program.name for program in PROGRAMS]
    assert len(set(names)) == len(names)
    assert {*names, *(program.name for program in (*MONITORS, *CALLS))} >= FAST
