"""A loop of one's own with Accelerate: the profiler steps when the gradients are synchronised.

accelerate launch examples/train_accelerate.py
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import profiler_ext


def main(folder: str = "profile_out", steps: int = 8) -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(gradient_accumulation_steps=2)  # two batches are one step
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = 8 * steps * accelerator.num_processes
    data = DataLoader(TensorDataset(*torch.randn(2, rows, 16)), batch_size=4)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)

    schedule = torch.profiler.schedule(wait=4, warmup=1, active=2, repeat=1)
    with profiler_ext.profile(schedule=schedule) as prof:
        for x, target in data:
            with accelerator.accumulate(model):
                loss = F.mse_loss(model(x), target)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                prof.step()

    prof.session.save(Path(folder) / f"rank_{accelerator.process_index}")
    if accelerator.is_main_process:
        print(prof.report("module"))


if __name__ == "__main__":
    main(*sys.argv[1:2])
