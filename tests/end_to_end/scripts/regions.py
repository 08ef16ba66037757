"""Three blocks, each with a region that Inductor compiles by itself; the rest runs eagerly."""

import warnings

import torch
from torch import nn

with warnings.catch_warnings():  # torch's own modules warn of what they use of each other
    warnings.simplefilter("ignore")
    from torch._dynamo.backends.common import aot_autograd
    from torch.fx.passes.regional_inductor import regional_inductor


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.fx.traceback.annotate({"compile_with_inductor": 0}):
            inside = x.sin() @ self.weight
        return inside.cos()


model = nn.Sequential(*(Block() for _ in range(3)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
backend = aot_autograd(fw_compiler=regional_inductor, bw_compiler=regional_inductor)
compiled = torch.compile(model, backend=backend, fullgraph=True)
for _ in range(4):
    compiled(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
