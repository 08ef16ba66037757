"""A node of compiled autograd's graph tells of which call of a backward graph it is a copy."""

import pytest
import torch

import profiler_ext
from profiler_ext.capture.lineage.compiled_autograd import all_with_copied_lineage
from profiler_ext.records.evidence import LineEvidence
from tests.capture.test_compiled_autograd import compiled_autograd, ours
from tests.fx_nodes import changed, fx_node

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


@pytest.mark.usefixtures("fresh_torch")
def test_each_copy_of_a_graph_used_twice_tells_which_it_is_and_their_sum_tells_none() -> None:
    profiler_ext.enable(strict=True)
    shared = torch.compile(lambda x, weight: x @ weight)
    x, weight = torch.ones(8, 8), torch.eye(8, requires_grad=True)
    with compiled_autograd():
        shared(shared(x.requires_grad_(), weight), weight).backward(torch.ones(8, 8))
    found = {
        is_sum: [n.lineage.copied_call for n in ours().nodes if n.lineage.is_gradient_acc is is_sum]
        for is_sum in (False, True)
    }
    first = found[False][0]
    second = f"{first}_1"
    assert found == {False: [first, second, first, second], True: [second, None]}


def test_a_node_that_leads_nowhere_here_does_not_keep_the_call_of_another_process() -> None:
    node = fx_node("mm", "aten.mm.default", copied_from="aot0_1_mm", copied_call="aot0_1")
    recorded = changed(node, evidence=LineEvidence.RECORDED)
    [kept] = all_with_copied_lineage([recorded], {})
    assert kept == changed(recorded, copied_call=None)
