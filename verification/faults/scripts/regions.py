import torch
from training import Model, train

torch.manual_seed(0)
model = Model()


@torch.compiler.nested_compile_region
def block(number_of, x):
    return number_of(x)


@torch.compile
def forward(x):
    for each in model.blocks:
        x = block(each, x)
    return model.head(x)


def step(x):
    loss = forward(x).square().mean()
    loss.backward()
    return loss


train(step, list(model.parameters()))
