"""A sample of the oracle of eager lines: in these programs every launch has its line.

``python -m verification.eager_oracle`` draws as many more as asked, on the CPU or on a GPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.watched import needs_lines
from verification.eager_oracle.judging import Score, judge
from verification.eager_oracle.programs import BLOCKS, draw, program
from verification.eager_oracle.removing import remove
from verification.eager_oracle.running import run_program

pytestmark = needs_lines
TOGETHER = 5


@pytest.mark.parametrize("at", range(0, len(BLOCKS), TOGETHER), ids=lambda at: BLOCKS[at].__name__)
def test_each_launch_of_a_block_has_the_line_that_its_shapes_tell(at: int, tmp_path: Path) -> None:
    """Each block stands between two plain ones; a few are one program, for time."""
    score = Score()
    blocks = [each for block in BLOCKS[at : at + TOGETHER] for each in (BLOCKS[0], block)]
    drawn = program(7, (*blocks, BLOCKS[0]))
    judge(score, drawn, run_program(drawn.text, "blocks", tmp_path, "cpu"))
    assert (score.wrong, score.failed, dict(score.gaps)) == ([], [], {})
    assert (score.precision, score.recall) == (1.0, 1.0)


@pytest.mark.parametrize("seed", [6, 30, 47])
def test_each_launch_of_a_program_has_the_line_that_its_shapes_tell(
    seed: int, tmp_path: Path
) -> None:
    score, drawn = Score(), draw(seed)
    judge(score, drawn, run_program(drawn.text, "whole", tmp_path, "cpu"))
    assert score.is_perfect, (score.wrong, score.failed)


@pytest.mark.parametrize("seed", [3, 6, 7])
def test_without_a_line_its_launches_are_gone_and_no_others(seed: int, tmp_path: Path) -> None:
    removal = remove(seed, tmp_path, "cpu")
    assert removal is not None
    assert removal.is_exact, removal
