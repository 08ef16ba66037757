"""What a program may ask of torch amid its steps, beside the training itself."""

import copy
import io
import pickle
import sys

import torch
from torch._subclasses import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.module_tracker import ModuleTracker
from training import Model, digest, model, train

X = torch.ones(2, 8)


def trains(call, of, steps=5, optimizer=None):
    """Train by a call, and print each loss bit for bit."""
    chosen = optimizer or torch.optim.SGD(of.parameters(), lr=0.01)
    for _ in range(steps):
        chosen.zero_grad()
        loss = call(X).sum()
        loss.backward()
        chosen.step()
        print(loss.item().hex(), flush=True)


def compiled_as():
    """Each way to compile that needs no C++."""
    for options in ({"fullgraph": True}, {"dynamic": True}, {"mode": "max-autotune-no-cudagraphs"}):
        own = Model()
        trains(torch.compile(own, **options), own, 3)


def left_out():
    """A function that Dynamo leaves alone, one that it takes as it is, and neither."""
    inner = torch.compiler.disable(lambda x: x @ x.T)
    whole = torch.compiler.allow_in_graph(lambda x: x @ torch.ones(8, 8))
    own = Model()
    trains(torch.compile(lambda x: inner(whole(own(x))) @ torch.ones(2, 2)), own)
    trains(torch.compiler.disable(torch.compile(own)), own)


def forgets():
    for number in range(5):
        train(1)
        (torch._dynamo.reset if number % 2 else torch.compiler.reset)()


def configures():
    for number in range(5):
        with torch._inductor.config.patch(max_fusion_size=8 + number):
            torch._dynamo.reset()
            train(1)


def exports():
    for strict in (False, True):
        for _ in range(3):
            train(1)
            program = torch.export.export(Model(), (X,), strict=strict)
            print(sorted(program.state_dict), [str(node) for node in program.graph.nodes])


def scripts():
    for _ in range(4):
        train(1)
        own, file = torch.jit.script(Model()), io.BytesIO()
        torch.jit.save(own, file)
        print(own(X).sum().item().hex(), torch.fx.symbolic_trace(model).code)


def functional():
    compiled = torch.compile(lambda values, x: torch.func.functional_call(model, values, (x,)))
    for _ in range(5):
        train(1)
        values = {name: each.detach() * 2 for name, each in model.named_parameters()}
        print(compiled(values, X).sum().item().hex())


def copied_optimizer():
    own = Model()
    optimizer = torch.optim.AdamW(own.parameters(), lr=0.01)
    for _ in range(6):
        trains(torch.compile(own), own, 1, optimizer)
        other = copy.deepcopy(optimizer)
        print(sorted(vars(other)), len(pickle.dumps(optimizer)), len(other.state))


def closures():
    own = Model()
    compiled, optimizer = torch.compile(own), torch.optim.LBFGS(own.parameters(), lr=0.001)

    def closure():
        optimizer.zero_grad()
        loss = (compiled(X) ** 2).sum()
        loss.backward()
        return loss

    for _ in range(5):
        print(optimizer.step(closure).item().hex())


def steps_in_backward():
    own = Model()
    for parameter in own.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.01)
        parameter.register_post_accumulate_grad_hook(lambda _, each=optimizer: each.step())
    compiled = torch.compile(own)
    for _ in range(6):
        loss = compiled(X).sum()
        loss.backward()
        print(loss.item().hex())


def scaled():
    own = Model()
    compiled, optimizer = torch.compile(own), torch.optim.SGD(own.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(6):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = compiled(X).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(loss.item().hex(), scaler.get_scale())


def hooked():
    seen = []
    own = torch.nn.Sequential(Model(), torch.nn.Linear(8, 8))
    own.register_full_backward_hook(lambda *_: seen.append("backward"))
    own[1].register_full_backward_pre_hook(lambda *_: seen.append("before"))
    own.register_forward_hook(lambda *_: seen.append("forward"))
    trains(torch.compile(own), own)
    trains(own, own)
    print(seen)


def hooked_everywhere():
    seen = []
    hooks = torch.nn.modules.module
    handles = [
        hooks.register_module_forward_pre_hook(lambda *_: seen.append("before")),
        hooks.register_module_forward_hook(lambda *_: seen.append("after")),
    ]
    train(3)
    for handle in handles:
        handle.remove()
    train(3)
    print(seen)


def called_otherwise():
    """The way in which torch calls each module is the program's own."""
    calls, original = [], torch.nn.Module.__call__

    def counted(self, *args, **kwargs):
        calls.append(type(self).__name__)
        return original(self, *args, **kwargs)

    train(1)
    torch.nn.Module.__call__ = counted
    own = Model()
    trains(own, own, 4)
    torch.nn.Module.__call__ = original
    train(2)
    print(calls)


def swapped():
    torch.__future__.set_swap_module_params_on_conversion(True)
    own = Model()
    compiled = torch.compile(own)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        train(2)
        print(compiled.to(dtype)(X.to(dtype)).sum().item().hex())


def packed():
    counts = [0, 0]

    def pack(x):
        counts[0] += 1
        return x

    def unpack(x):
        counts[1] += 1
        return x

    own = Model()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        trains(own, own)
    with torch.autograd.graph.save_on_cpu():
        train(3)
    print(counts)


def faked():
    train(2)
    with FakeTensorMode():
        own = Model()
        own(torch.ones(2, 8)).sum().backward()
        print(own.first.grad.shape)
    train(4)


def counted():
    own = Model()
    with FlopCounterMode(display=False) as flops, ModuleTracker() as tracker:
        own.register_forward_hook(lambda *_: print(sorted(tracker.parents)))
        trains(own, own)
    print(flops.get_total_flops())


def odd_modes():
    """Settings of torch that hold for some steps each."""
    for mode in (
        torch.autograd.detect_anomaly(check_nan=True),
        torch.autograd.set_multithreading_enabled(False),
        torch.device("meta"),
    ):
        with mode:
            train(2)
    with torch.inference_mode():
        print(torch.compile(model)(torch.ones(2, 8)).sum().item().hex())


globals()[sys.argv[1]]()
print(digest())
