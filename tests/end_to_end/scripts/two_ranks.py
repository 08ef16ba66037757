import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(16, 16)

    def forward(self, x):
        return torch.relu(self.up(x)) * 0.5


class Parallel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(16, 16)
        self.down = torch.nn.Linear(16, 16)
        self.register_buffer("scale", torch.ones(16))

    def forward(self, x):
        h = torch.relu(self.up(x))
        self.scale.mul_(0.75)
        h = h * self.scale.to_local()
        return self.down(h)


class Model(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layers = torch.nn.ModuleList(layer() for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.sum()


def sharded(mesh):
    model = Model(Layer)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def tensor_parallel(mesh):
    model = Model(Parallel)
    for layer in model.layers:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        layer.scale = distribute_tensor(layer.scale, mesh, [Shard(0)])
    return model


dist.init_process_group("gloo")
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (2,))
models = [DistributedDataParallel(Model(Layer)), sharded(mesh), tensor_parallel(mesh)]
steps = [torch.compile(model) for model in models]
parameters = [parameter for model in models for parameter in model.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1, foreach=False)
for _ in range(4):
    optimizer.zero_grad()
    for step in steps:
        step(torch.ones(8, 16)).backward()
    optimizer.step()
dist.destroy_process_group()
