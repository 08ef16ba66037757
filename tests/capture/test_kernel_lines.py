"""The lines of generated kernels, in models where capture once gave wrong ones.

The oracle's constants tell what is right (``verification/oracle``); no C++ is compiled.
"""

from pathlib import Path

import pytest
import torch._dynamo

from verification.oracle.compiling import compile_model
from verification.oracle.draft import Model
from verification.oracle.scoring import Score, add

_MODEL = """\
import torch
import torch.nn.functional as F

def model({names}):
    {body}

def inputs(device):
    x = torch.rand(8, 32, device=device, requires_grad=True)
    i = torch.randint(8, (8,), device=device)
    return ({values})
"""


def lines_of(tmp_path: Path, body: str, names: str = "x", values: str = "x,") -> Score:
    text = _MODEL.format(names=names, values=values, body="\n    ".join(body.split("; ")))
    score, model = Score(), Model(0, (), text)
    add(score, model, compile_model(model, tmp_path, "cpu", 60))
    return score


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("y = x * 1.000244140625; y.index_put_((i,), x * 1.000732421875); return y + 1", 4),
        ("y = x * 1.000244140625; y.index_add_(0, i, x * 1.000732421875); return y + 1", 4),
        ("y = torch.sin(x) * 1.000244140625; z = y[i] * 1.000732421875; return z + y", 4),
    ],
)
def test_a_scatter_and_what_it_writes_into_are_distinguished(
    tmp_path: Path, body: str, lines: int
) -> None:
    score = lines_of(tmp_path, body, "x, i", "x, i")
    assert (score.wrong, score.failed, score.right) == ([], [], lines)


def test_a_wait_for_another_kernel_is_no_read(tmp_path: Path) -> None:
    body = (
        "s = torch.exp(p.sum() * 1.000244140625); y = x.detach() * 1.000732421875; "
        "p.copy_(y + 1.001220703125); return x * s"
    )
    score = lines_of(tmp_path, body, "x, p", "x, torch.rand(8, 32, device=device)")
    assert (score.wrong, score.failed, score.right) == ([], [], 3)


def test_each_leaf_of_a_foreach_op_has_its_own_lines(tmp_path: Path) -> None:
    body = (
        "a = x * 1.000244140625; b = x[:, :7] * 1.000732421875; "
        "c, d = torch._foreach_mul([a, b], 1.001220703125); return c.sum() + d.sum()"
    )
    score = lines_of(tmp_path, body)
    assert (score.wrong, score.failed) == ([], [])


def test_the_scale_of_a_softmax_keeps_its_line_when_torch_rewrites_it(tmp_path: Path) -> None:
    body = "y = x * 1.000244140625; z = torch.softmax(y, -1); return z * 1.000732421875"
    score = lines_of(tmp_path, body)
    assert (score.wrong, score.failed) == ([], [])


def test_a_gradient_taken_inside_the_graph_has_the_lines_that_it_differentiates(
    tmp_path: Path,
) -> None:
    body = (
        "f = lambda t: (torch.sin(t) * 1.000244140625).sum(); "
        "g = torch.func.grad(f)(x); return g * 1.000732421875 + x"
    )
    score = lines_of(tmp_path, body)
    assert (score.wrong, score.failed, score.right) == ([], [], 4)


def test_a_foreach_op_that_writes_in_place_is_made_of_what_it_adds(tmp_path: Path) -> None:
    body = (
        "g = torch._foreach_mul([x.detach(), p], 1.000244140625); "
        "torch._foreach_add_([p, q], g, alpha=1.000732421875); return x * p.mean()"
    )
    values = "x, torch.rand(8, 32, device=device), torch.rand(8, 32, device=device)"
    score = lines_of(tmp_path, body, "x, p, q", values)
    assert (score.wrong, score.failed) == ([], [])
    assert score.right >= 2


def test_the_backward_of_a_branch_has_the_lines_of_the_branch(tmp_path: Path) -> None:
    body = (
        "yes = lambda t: torch.sin(t * 1.000244140625); "
        "no = lambda t: torch.cos(t * 1.000732421875); "
        "return torch.cond(x.sum() > 0, yes, no, (x,)) * 1.001220703125"
    )
    score = lines_of(tmp_path, body)
    assert (score.wrong, score.failed) == ([], [])
    assert score.right >= 4


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_the_body_of_a_scan_keeps_its_lines_in_the_loop_that_torch_makes_of_it(
    tmp_path: Path,
) -> None:
    body = (
        "from torch._higher_order_ops.scan import scan; "
        "def carry(h): return torch.tanh(h * 1.000244140625); "
        "def up(h): return h * 1.000732421875; "
        "def down(h): return h * 1.002197265625; "
        "def kept(h): return torch.cond(h.sum() > 0, up, down, (h,)); "
        "d = x.detach() * 1.001220703125; "
        "h, rows = scan(lambda h, row: (carry(h + row), kept(h)), d.sum(0), d); "
        "return (h + rows * x * 1.001708984375).sum()"
    )
    score = lines_of(tmp_path, body)
    assert (score.wrong, score.failed, score.right) == ([], [], 6)
