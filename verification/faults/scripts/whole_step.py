import torch
from training import Model, train

torch.manual_seed(0)
model = Model()
adam = torch.optim.AdamW(model.parameters(), lr=0.01)


@torch.compile
def forward(x):
    return model(x).square().mean()


@torch.compile
def update():
    adam.step()


def step(x):
    loss = forward(x)
    loss.backward()
    update()
    return loss


train(step, list(model.parameters()))
