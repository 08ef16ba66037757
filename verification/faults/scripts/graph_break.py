import torch
from training import Model, train

torch.manual_seed(0)
model = Model()
for block in model.blocks:
    block.compile()


@torch.compile
def head(x):
    y = model.head(x)
    torch._dynamo.graph_break()
    return y.square().mean()


def step(x):
    for block in model.blocks:
        x = block(x)
    loss = head(x)
    loss.backward()
    return loss


train(step, list(model.parameters()))
