"""A small MLP, compiled, with an eager AdamW: the shortest script that shows every phase.

profiler-ext run examples/mlp.py
"""

import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.norm = nn.LayerNorm(4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.gelu(self.up(x))
        h = self.norm(h)
        return F.relu(self.down(h)) + x


def main(steps: int = 8, batch: int = 256, width: int = 64) -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = MLP(width).to(device)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, target = torch.randn(2, batch, width, device=device)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(compiled(x), target)
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
