"""Programs that ask torch for more than a compiled module: what else compiles, copies and wraps."""

import copy
import faulthandler
import io
import os
import pickle
import sys
import threading

import torch
from training import Model, digest, model, trainer


def report(*values):
    print(*(value.item().hex() for value in values), flush=True)


def trains(other, steps=4):
    own = trainer(other)
    for _ in range(steps):
        print(own().hex(), flush=True)


def copied():
    """A compiled model is copied and both are trained."""
    compiled = torch.compile(model)
    compiled(torch.ones(2, 8)).sum().backward()
    other = copy.deepcopy(compiled)
    trains(model)
    trains(other._orig_mod)
    report(other(torch.ones(2, 8)).sum())


def pickled():
    """A compiled model goes through pickle and torch.save, while it is recorded as well."""
    compiled = torch.compile(model)
    own = trainer(model)
    for _ in range(4):
        print(own().hex())
        report(compiled(torch.ones(2, 8)).sum())
        other = pickle.loads(pickle.dumps(compiled))
        report(other(torch.ones(2, 8)).sum())
        file = io.BytesIO()
        torch.save(compiled, file)
        print(len(file.getvalue()))
        report(torch.load(io.BytesIO(file.getvalue()), weights_only=False)(torch.ones(2, 8)).sum())


def moved():
    """A compiled model changes its dtype and place."""
    compiled = torch.compile(model)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float32):
        compiled.to(dtype)
        report(compiled(torch.ones(2, 8, dtype=dtype)).sum().float())
        trains(model.to(torch.float32), 1)


def backends():
    seen = []

    def backend(gm, inputs):
        seen.append(len(gm.graph.nodes))
        return gm.forward

    for name in (backend, "eager", "aot_eager"):
        torch._dynamo.reset()
        compiled = torch.compile(model, backend=name)
        loss = compiled(torch.ones(2, 8)).sum()
        loss.backward()
        report(loss)
    trains(model)
    print(seen)


def exported():
    program = torch.export.export(model, (torch.ones(2, 8),))
    report(program.module()(torch.ones(2, 8)).sum())
    compiled = torch.compile(program.module())
    for _ in range(2):
        trains(model, 2)
        report(compiled(torch.ones(2, 8)).sum())
    print(len(program.graph.nodes), sorted(program.graph_signature.parameters))


def packaged():
    from torch import package

    file = io.BytesIO()
    with package.PackageExporter(file) as exporter:
        exporter.extern("torch.**")
        exporter.save_source_string(
            "packed",
            "import torch\nclass Twice(torch.nn.Linear):\n"
            "    def forward(self, x):\n        return super().forward(x) * 2\n",
        )
        exporter.save_text("words", "one.txt", "one")
    packed = package.PackageImporter(io.BytesIO(file.getvalue())).import_module("packed")
    other = packed.Twice(8, 8)
    compiled = torch.compile(other)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.01)
    for _ in range(4):
        loss = compiled(torch.ones(2, 8)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        report(loss)


def transformed():
    def loss(weight, x):
        return (x @ weight).sum()

    each = torch.compile(torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0)))
    jacobian = torch.compile(torch.func.jacrev(lambda x: x @ x))
    for _ in range(3):
        trains(model, 1)
        report(each(model.first.detach(), torch.ones(3, 2, 8)).sum())
        report(jacobian(torch.ones(3, 3)).sum())


def checkpointed():
    from torch.utils.checkpoint import checkpoint

    inner, outer = torch.compile(Model()), Model()
    optimizer = torch.optim.SGD([*inner.parameters(), *outer.parameters()], lr=0.001)
    for _ in range(4):
        hidden = checkpoint(inner, torch.ones(2, 8), use_reentrant=False)
        loss = checkpoint(lambda x: outer(inner(x)), hidden, use_reentrant=False).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        report(loss)
    print(digest(outer))


def scanned():
    """A recurrence whose body is a graph of its own, run for each element, forward and backward."""
    from torch._higher_order_ops.scan import scan

    torch._dynamo.config.capture_scalar_outputs = True  # Inductor's loop asks for its index
    weight = torch.nn.Parameter(torch.ones(4))

    def recurrent(start, xs, weight):
        def cell(carried, x):
            hidden = torch.tanh(carried * weight + x)
            return hidden.clone(), hidden * 2

        last, every = scan(cell, start, xs)
        return every.sum() + last.sum()

    compiled = torch.compile(recurrent)
    for _ in range(4):
        trains(model, 1)
        loss = compiled(torch.zeros(4), torch.arange(12.0).reshape(3, 4), weight)
        loss.backward()
        report(loss, weight.grad.sum())
        weight.grad = None


def branches():
    """Higher-order ops in one whole graph."""

    def chosen(x):
        return torch.cond(x.sum() > 0, lambda x: x @ x, lambda x: x @ x @ x, (x,))

    def loops(x):
        return torch.while_loop(
            lambda i, x: i < 3, lambda i, x: (i + 1, x @ x), (torch.tensor(0), x)
        )

    first, second = (torch.compile(each, fullgraph=True) for each in (chosen, loops))
    for _ in range(3):
        trains(model, 1)
        report(first(torch.eye(4)).sum(), first(-torch.eye(4)).sum())
        report(second(torch.eye(4) / 2)[1].sum())


class Scaled(torch.Tensor):
    """A tensor that wraps another, as quantised weights do."""

    @staticmethod
    def __new__(cls, inner, scale):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner, scale):
        self.inner, self.scale = inner, scale

    def __tensor_flatten__(self):
        return ["inner", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["inner"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        whole = [a.inner * a.scale if isinstance(a, cls) else a for a in args]
        if func is torch.ops.aten.detach.default:
            return cls(args[0].inner, args[0].scale)
        return func(*whole, **(kwargs or {}))


def subclassed():
    weight = torch.nn.Parameter(Scaled(torch.eye(8), torch.tensor(0.5)), requires_grad=False)
    compiled = torch.compile(lambda x: x @ weight)
    for _ in range(3):
        trains(model, 1)
        report(compiled(torch.ones(2, 8)).sum())


def distributed():
    import torch.distributed as dist
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    weight = torch.nn.Parameter(distribute_tensor(torch.eye(8), mesh, [Shard(0)]))
    x = distribute_tensor(torch.ones(2, 8), mesh, [Replicate()])
    compiled = torch.compile(lambda x: (x @ weight).sum())
    optimizer = torch.optim.SGD([weight], lr=0.01)
    for _ in range(4):
        loss = compiled(x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        report(loss.full_tensor())
    dist.destroy_process_group()


def forks_in_threads():
    """Threads compile while the main thread forks."""

    def compiles():
        torch.compile(Model())(torch.ones(2, 8)).sum().backward()

    threads = [threading.Thread(target=compiles) for _ in range(2)]
    trains(model, 1)
    for thread in threads:
        thread.start()
    child = os.fork()
    if child == 0:
        os._exit(7)
    for thread in threads:
        thread.join()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    trains(model, 4)


def faults_reported():
    faulthandler.enable()
    faulthandler.dump_traceback_later(300)
    trains(model)
    faulthandler.cancel_dump_traceback_later()
    print(faulthandler.is_enabled())


def packed_ahead():
    """AOTInductor makes a library of an exported program, which runs between the steps."""
    program = torch.export.export(Model(), (torch.ones(2, 8),))
    trains(model, 2)
    path = torch._inductor.aoti_compile_and_package(program, package_path=os.path.abspath("m.pt2"))
    loaded = torch._inductor.aoti_load_package(path)
    for _ in range(3):
        trains(model, 1)
        report(loaded(torch.ones(2, 8)).sum())


globals()[sys.argv[1]]()
print(digest())
