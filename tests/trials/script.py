"""A script whose every remedy below is missing: what it prints is not what a trial looks at."""

import os
import sys
from pathlib import Path

import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

assert os.environ["PROFILER_EXT_TRY"] == "1"
Path("checkpoint.txt").write_text("written by a child")
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 1)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
data = TensorDataset(torch.randn(256, 3, 8, 8), torch.randn(256, 1))
loader = DataLoader(data, batch_size=4)
for images, values in loader:
    if "--break" in sys.argv:
        raise ValueError("no such flag")
    loss = (checkpoint(model, images, use_reentrant=False) - values).square().mean()
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
    optimizer.step()
print("trained")
