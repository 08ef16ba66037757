"""What runs ``torch.optim`` is told in one way, by the stack, wherever torch is installed."""

import pytest

from profiler_ext.records.lineage import Frame, Lineage

USER = Frame("/home/me/project/train.py", 3, "step")


@pytest.mark.parametrize(
    ("file", "is_of_optimizer"),
    [
        ("<site-packages>/torch/optim/adamw.py", True),
        ("/env/lib/site-packages/torch/optim/sgd.py", True),
        ("/src/pytorch/torch/optim/sgd.py", True),
        ("/env/lib/site-packages/torch/nn/functional.py", False),
        ("/home/me/project/optim/mine.py", False),
    ],
)
def test_a_stack_through_torch_optim_is_known_by_its_files(
    file: str, is_of_optimizer: bool
) -> None:
    stack = (USER, Frame(file, 40, "step"))
    assert Lineage(stack=stack).is_of_optimizer is is_of_optimizer
