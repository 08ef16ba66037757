"""Where torch tells no line of what made a value, the sum of its gradients has none either."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from verification.truth.claiming import claim
from verification.truth.models.making import leaf


class UsedTwice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wave = x.sin()
        return wave * x


@pytest.mark.usefixtures("fresh_torch")
def test_a_sum_has_no_line_of_another_module() -> None:
    model = nn.Sequential(UsedTwice(), nn.ReLU(), UsedTwice())  # which torch itself calls
    claims = claim(model, (leaf(2, 4),)).each
    sums = [each.node.lineage for each in claims if each.node.lineage.is_gradient_acc]
    of_relu = [lineage for lineage in sums if lineage.forward_node == "relu"]
    assert [(o.modules[-1].path, o.stack, o.mechanism) for o in of_relu] == [("1", (), None)]
    assert [lineage.stack[-1].code for lineage in sums if lineage.forward_node is None] == [
        "wave = x.sin()"
    ]
