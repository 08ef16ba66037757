import torch
from training import Model, train

torch.manual_seed(0)
model = Model()
compiled = torch.compile(model, mode="reduce-overhead")


def step(x):
    torch.compiler.cudagraph_mark_step_begin()
    loss = compiled(x).square().mean()
    loss.backward()
    return loss


train(step, list(model.parameters()), batches=6)
