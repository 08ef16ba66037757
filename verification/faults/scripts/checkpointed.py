import torch
from torch.utils.checkpoint import checkpoint
from training import Model, train

torch.manual_seed(0)
model = Model()


@torch.compile
def forward(x):
    for block in model.blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return model.head(x)


def step(x):
    loss = forward(x).square().mean()
    loss.backward()
    return loss


train(step, list(model.parameters()))
