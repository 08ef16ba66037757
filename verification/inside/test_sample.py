"""A sample: of these models' kernels every line is on a node, an index, a mask or a frame.

``python -m verification.inside lines`` counts as many more as asked, and their instructions.
"""

from pathlib import Path

import pytest

from profiler_ext.capture.graphs import kernel_cost
from verification.inside.assembling import instructions
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


EXPRESSIONS = {
    "exp": "libdevice.exp(x)",
    "expm1": "libdevice.expm1(x)",
    "log": "tl_math.log(x)",
    "log1p": "libdevice.log1p(x)",
    "erf": "libdevice.erf(x)",
    "sin": "tl_math.sin(x)",
    "cos": "tl_math.cos(x)",
    "tanh": "libdevice.tanh(x)",
    "sigmoid": "tl.sigmoid(x)",
    "pow": "libdevice.pow(x, 2.5)",
    "sqrt": "tl.sqrt_rn(x)",
    "div": "(x / y)",
    "reciprocal": "(1.0 / x)",
    "inductor_random": "x + tl.rand(7, xindex.to(tl.uint32))",
}


@pytest.mark.whole
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_the_cost_model_has_the_instructions_that_triton_makes(name: str) -> None:
    assert {*kernel_cost.INSTRUCTIONS} == {*EXPRESSIONS}
    counted = instructions(EXPRESSIONS[name])
    assert counted == pytest.approx(kernel_cost.INSTRUCTIONS[name], rel=0.15)
