"""The gradient of a weight that is used twice is one product with a sum: it is the product's."""

from pathlib import Path

import torch
import torch._dynamo

import profiler_ext
from tests.compiling import capture
from verification.oracle.stubs import stubbed


class Tied(torch.nn.Module):
    """A language model's first and last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(17, 8)
        self.head = torch.nn.Linear(8, 17, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        return self.head(hidden.sin())


def test_a_product_that_a_pattern_merged_with_a_sum_stands_at_the_product(
    fresh_torch: Path,
) -> None:
    with stubbed("cpu"):
        profiler_ext.enable(cpu_events=False)
        out = torch.compile(Tied())(torch.zeros(3, 5, dtype=torch.int64))
        out.backward(torch.ones_like(out))
    merged = [
        (
            node.lineage.stack[-1].code,
            node.lineage.modules[-1].path,
            node.lineage.mechanism,
        )
        for graph in capture().graphs
        for node in graph.nodes
        if node.target == "aten.addmm.default"
    ]
    assert merged == [("return self.head(hidden.sin())", "head", "replaced_by_pattern")]
