"""A sum of gradients of a value that no op made is of the innermost module around all it sums."""

import pytest

from profiler_ext.attribution.places import with_modules_of_gradient_sums
from profiler_ext.records.lineage import Lineage, ModuleFrame
from profiler_ext.records.provenance import FxNode

ROOT = ModuleFrame("", "Model")
LAYER = ModuleFrame("layers.1", "Layer")
ATTENTION = ModuleFrame("layers.1.attention", "Attention")
OTHER = ModuleFrame("layers.0", "Layer")

Modules = tuple[ModuleFrame, ...]


def node(name: str, modules: Modules, *inputs: str, is_sum: bool = False) -> FxNode:
    lineage = Lineage(modules=modules, is_gradient_acc=is_sum)
    return FxNode(name, "aten.add.Tensor", lineage, inputs=inputs)


@pytest.mark.parametrize(
    ("own", "used_in", "expected"),
    [
        # torch says nothing but the module that was compiled
        ((ROOT,), (ROOT, LAYER, ATTENTION), (ROOT, LAYER, ATTENTION)),
        # a repeated region's sum is attributed to the call; its uses are further in
        ((ROOT, LAYER), (ROOT, LAYER, ATTENTION), (ROOT, LAYER, ATTENTION)),
        # what it sums is known no better
        ((ROOT, LAYER), (ROOT, LAYER), (ROOT, LAYER)),
        ((ROOT, LAYER), (ROOT,), (ROOT, LAYER)),
        ((ROOT,), (), (ROOT,)),
        # or elsewhere
        ((ROOT, LAYER), (ROOT, OTHER, ATTENTION), (ROOT, LAYER)),
    ],
)
def test_a_sum_has_the_modules_around_its_uses(
    own: Modules, used_in: Modules, expected: Modules
) -> None:
    uses = node("query", used_in), node("key", used_in)
    summed = node("add", own, "query", "key", is_sum=True)
    assert list(with_modules_of_gradient_sums([*uses, summed]))[-1] == node(
        "add", expected, "query", "key", is_sum=True
    )


def test_what_is_used_in_two_modules_is_of_the_one_around_them() -> None:
    uses = node("query", (ROOT, LAYER, ATTENTION)), node("up", (ROOT, LAYER))
    summed = node("add", (ROOT,), "query", "up", is_sum=True)
    (*_, changed) = with_modules_of_gradient_sums([*uses, summed])
    assert changed.lineage.modules == (ROOT, LAYER)
