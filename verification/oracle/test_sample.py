"""A sample of the oracle: in these models every line of every generated kernel is right.

``python -m verification.oracle`` draws as many more as asked, on the CPU or on a GPU.
"""

from pathlib import Path

import pytest

from tests.patience import patience_s
from verification.oracle.ablation import ablate
from verification.oracle.compiling import compile_model
from verification.oracle.models import draw
from verification.oracle.scoring import Score, add

SEEDS = (37, 44, 61, 93, 132, 133, 160, 169, 174, 299)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_kernel_has_the_lines_whose_constants_stand_in_its_code(
    seed: int, tmp_path: Path
) -> None:
    score, model = Score(), draw(seed)
    add(score, model, compile_model(model, tmp_path, "cpu", limit_s=patience_s(120)))
    assert score.right > 0
    assert (score.wrong, score.failed) == ([], [])
    assert (score.precision, score.recall) == (1.0, 1.0)


@pytest.mark.parametrize("seed", [3, 6])
def test_without_a_line_each_call_site_given_to_it_is_gone_or_has_other_code(
    seed: int, tmp_path: Path
) -> None:
    found = ablate(seed, tmp_path, "cpu", limit_s=patience_s(120))
    assert found.given > found.equal
    assert found.unmoved == ()
