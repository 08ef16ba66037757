"""A Lightning Trainer on a small model, profiled by a callback.

python examples/train_lightning.py
"""

import sys

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from profiler_ext.integrations.lightning import ProfilerCallback


class Small(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        x, target = batch
        return F.mse_loss(self.down(F.relu(self.up(x))), target)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(folder: str = "profile_out", steps: int = 8) -> None:
    pl.seed_everything(0, verbose=False)
    data = TensorDataset(*torch.randn(2, 16 * steps, 16))
    callback = ProfilerCallback(folder, skip=5, steps=2)
    trainer = pl.Trainer(
        max_steps=steps,
        accumulate_grad_batches=2,  # two batches are one step
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Small(), DataLoader(data, batch_size=4))
    print(callback.profile.session.report("module"))


if __name__ == "__main__":
    main(*sys.argv[1:2])
