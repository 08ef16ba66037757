import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(16, 16)

    def forward(self, x):
        return torch.relu(self.up(x)) * 0.5


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.sum()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Model()
step = torch.compile(DistributedDataParallel(model))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    step(torch.ones(8, 16)).backward()
    optimizer.step()
dist.destroy_process_group()
