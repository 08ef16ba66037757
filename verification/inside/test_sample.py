"""A sample: of these models' kernels every line is on a node, an index, a mask or a frame.

``python -m verification.inside lines`` counts as many more as asked, and their instructions.
"""

from pathlib import Path

import pytest

from verification.inside.counting import Count
from verification.inside.lines import count_model

pytest.importorskip("triton")


@pytest.mark.parametrize("seed", [3, 57, 506])
def test_no_line_and_no_instruction_of_a_kernel_is_a_gap(seed: int, tmp_path: Path) -> None:
    count = Count()
    count_model(count, seed, tmp_path, every=8)
    assert (count.gaps, count.failures) == ([], [])
    assert count.unlike["no call site"] == 0
    assert set(count.tables) == {"equal code"}
    assert count.lines["node"] > count.lines["index"] > 0 < count.instructions["node"]
