"""What the programs train that meet a watch of their lines: each loss is said bit for bit."""

import torch

torch.manual_seed(0)
STEPS = 5  # the second and third are recorded


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 8))

    def forward(self, x):
        return torch.relu(x @ self.weight)


model = torch.nn.Sequential(Block(), Block())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train(within, steps=STEPS):
    """Call a function within each step, and say the losses."""
    for _ in range(steps):
        optimizer.zero_grad()
        within()
        loss = model(torch.ones(2, 8)).sum()
        loss.backward()
        optimizer.step()
        print(loss.item().hex(), flush=True)


def counted(name="x"):
    total = 0
    for each in range(3):
        total += each
    return total
