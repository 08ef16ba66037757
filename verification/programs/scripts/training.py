"""What the programs train: two matrix products, compiled; each loss is said bit for bit."""

import hashlib
import os

import torch

torch.set_default_device(os.environ.get("PROGRAMS_DEVICE", "cpu"))
torch.manual_seed(0)


class Model(torch.nn.Module):
    """Matrix products are library calls, which need no C++ compiler."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Parameter(torch.randn(8, 8))
        self.second = torch.nn.Parameter(torch.randn(8, 8))

    def forward(self, x):
        return x @ self.first @ self.second


def trainer(model):
    """Return a function that trains a model for one step and returns its loss."""
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.ones(2, 8)

    def step():
        optimizer.zero_grad()
        loss = compiled(x).sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


model = Model()
step = trainer(model)


def train(steps, who="main"):
    for _ in range(steps):
        print(who, step().hex(), flush=True)


def digest(of=model):
    """Return a digest of the parameters and their gradients."""
    found = hashlib.sha256()
    for parameter in of.parameters():
        found.update(parameter.detach().cpu().numpy().tobytes())
        if parameter.grad is not None:
            found.update(parameter.grad.cpu().numpy().tobytes())
    return found.hexdigest()[:16]
