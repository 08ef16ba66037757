"""The cases of where and when a step runs."""

from __future__ import annotations

import torch

from tests.cases import Case
from tests.cases.models import Block, training


def in_a_thread(device):
    import threading

    model = Block(64).to(device)
    compiled = torch.compile(lambda x: model(x).square().mean())
    x = torch.randn(2, 16, 64, device=device)
    one = training(model, x, compiled=compiled)

    def step():
        worker = threading.Thread(target=one)
        worker.start()
        worker.join()

    return Case(step)


CASES = (in_a_thread,)
