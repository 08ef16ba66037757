"""What a program has replaced, taken out, reset or forbidden amid its steps, recorded ones too."""

import os
import signal
import sys
import threading

import torch
from training import Model, digest, step, train

X = torch.ones(2, 8)


def stepping(between):
    """Train; something is done between forward and backward of each step."""
    own = Model()
    compiled, optimizer = torch.compile(own), torch.optim.SGD(own.parameters(), lr=0.01)
    for number in range(5):
        optimizer.zero_grad()
        loss = compiled(X).sum()
        between(number)
        loss.backward()
        optimizer.step()
        print(number, loss.item().hex(), flush=True)


def compile():
    calls, original = [], torch.compile

    def counted(*args, **kwargs):
        calls.append(len(args))
        return original(*args, **kwargs)

    def between(number):
        torch.compile = counted if number == 2 else original
        print(torch.compile(Model())(X).sum().item().hex())

    stepping(between)
    print(calls)


def reset():
    calls, original = [], torch._dynamo.reset

    def between(number):
        torch._dynamo.reset = (lambda: calls.append(1)) if number == 2 else original
        torch._dynamo.reset()

    stepping(between)
    print(calls)


def stance():
    for chosen in ("default", "force_eager", "eager_on_recompile", "default"):
        torch.compiler.set_stance(chosen)
        train(2)
    with torch.compiler.set_stance("fail_on_recompile"):
        try:
            torch.compile(Model())(X)
        except RuntimeError as error:
            print(type(error).__name__)
    train(1)


def profile():
    """Torch's profiler is another's in each place that a program takes it from."""
    train(2)
    kept, torch.profiler.profile = torch.profiler.profile, None
    torch.profiler.profiler.profile = None
    train(3)
    torch.profiler.profile = torch.profiler.profiler.profile = kept


def modules():
    """Torch's own modules are taken out, and put back."""
    train(2)
    names = [each for each in sys.modules if each.startswith(("torch._inductor", "torch.profiler"))]
    kept = {name: sys.modules.pop(name) for name in names}
    train(3)
    sys.modules.update(kept)


def stdout():
    """By what can only be written to."""

    class Written:
        write = staticmethod(sys.stdout.write)

    train(2)
    sys.stdout = Written()
    for _ in range(3):
        sys.stdout.write(step().hex() + "\n")


def module_hooks():
    hooks = torch.nn.modules.module
    train(2)
    hooks._global_forward_hooks.clear()
    hooks._global_forward_pre_hooks.clear()
    train(3)


def folder():
    """By a thread, all the time."""
    os.mkdir("one")
    home, over = os.getcwd(), threading.Event()

    def wander():
        while not over.is_set():
            for place in (f"{home}/one", "/", home):
                os.chdir(place)

    thread = threading.Thread(target=wander)
    thread.start()
    train(5)
    over.set()
    thread.join()


def process():
    """As a daemon does: the root folder, no files, no signals."""
    train(2)
    os.chdir("/")
    os.closerange(3, 4096)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    train(3)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    sys.stdout.write(digest() + "\n")
