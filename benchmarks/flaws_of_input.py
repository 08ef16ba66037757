"""The flaws of the trial that lie in how a batch comes to the device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from benchmarks.cases import Pair, Sizes, training
from benchmarks.models import channels_last


def pageable_copy(sizes: Sizes) -> Pair:
    """A batch in ordinary memory; the same in pinned memory, copied beside the kernels."""
    count, side = (2, 64) if sizes.is_tiny else (128, 224)
    images = torch.randn(count, 3, side, side)
    kept = images if sizes.is_tiny else images.pin_memory()
    model = nn.Sequential(nn.Conv2d(3, 64, 7, 4), nn.ReLU(), nn.Conv2d(64, 128, 3, 2))
    channels_last(model).to(sizes.device)

    def of(batch: torch.Tensor, non_blocking: bool) -> Callable[[], torch.Tensor]:
        def forward() -> torch.Tensor:
            moved = batch.to(sizes.device, non_blocking=non_blocking)
            return model(moved.to(memory_format=torch.channels_last)).square().mean()

        return forward

    return Pair(
        training(model, forward=of(images, non_blocking=False)),
        training(model, forward=of(kept, non_blocking=True)),
    )


class Images(torch.utils.data.Dataset[torch.Tensor]):
    """Images that take some milliseconds each to make."""

    def __init__(self, side: int) -> None:
        self.side = side

    def __len__(self) -> int:
        """As many as anybody asks for."""
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return an image, blurred as an augmentation does."""
        image = torch.rand(3, self.side, self.side)
        return functional.avg_pool2d(image, 5, 1, 2)


def data_loader(sizes: Sizes) -> Pair:
    """A loader without workers; the same with eight."""
    batch, side, workers = (2, 16, 1) if sizes.is_tiny else (16, 224, 8)
    channels = 8 if sizes.is_tiny else 512
    model = nn.Sequential(nn.Conv2d(3, channels, 7, 2), nn.ReLU(), nn.Conv2d(channels, 64, 5, 2))
    channels_last(model).to(sizes.device)

    def forward(count: int) -> Callable[[], torch.Tensor]:
        pinned = sizes.device == "cuda"
        prefetched = 4 if count else None
        loader = torch.utils.data.DataLoader(
            Images(side), batch, num_workers=count, pin_memory=pinned, prefetch_factor=prefetched
        )
        batches = iter(loader)

        def run() -> torch.Tensor:
            images = next(batches).to(sizes.device, non_blocking=True)
            return model(images.contiguous(memory_format=torch.channels_last)).square().mean()

        return run

    return Pair(training(model, forward=forward(0)), training(model, forward=forward(workers)))
