"""How a program ends: exit codes, exceptions in a step, atexit, what it leaves behind."""

import atexit
import os
import sys

import torch
from training import Model, digest, step, train, trainer


def code(text):
    train(4)
    sys.exit(eval(text))


def leave():
    train(2)
    os._exit(3)


def leave_after():
    train(5)
    os._exit(3)


def fails(when):
    """An exception in the step, inside the forward, the backward or a hook; caught or not."""

    class Failing(Model):
        def forward(self, x):
            if len(losses) == 2 and when == "forward":
                self.fail()
            found = super().forward(x)
            if when in ("backward", "hook") and found.requires_grad:
                found.register_hook(failing)
            return found

        @torch.compiler.disable
        def fail(self):
            raise ValueError("in the forward")

    @torch.compiler.disable
    def failing(gradient):
        if len(losses) == 2:
            raise ValueError("in the hook")
        return gradient

    losses = []
    own = trainer(Failing())
    try:
        for _ in range(4):
            losses.append(own().hex())
            print(losses[-1], flush=True)
    except ValueError as error:
        print("caught", error, flush=True)
        if len(sys.argv) > 3:
            losses.append("")
            train(3)
            return
        raise


def handlers():
    """Handlers that run at exit see the script as it was, and may train on."""
    atexit.register(
        lambda: print("at exit", sys.argv, __name__, sys.modules["__main__"].digest is digest)
    )
    atexit.register(lambda: train(1, "at exit"))
    train(4)


def hooked():
    """An excepthook of the script's own."""
    sys.excepthook = lambda kind, error, trace: print(
        "hook", kind.__name__, error, trace.tb_frame.f_code.co_name, flush=True
    )
    train(4)
    raise KeyError("for the hook")


def chained():
    """Tracebacks show the script's own frames only, in causes too."""
    train(4)
    try:
        step(1)
    except TypeError as error:
        raise RuntimeError("because") from error


def group():
    train(4)
    raise ExceptionGroup("many", [ValueError(1), KeyError(2)])


def interrupted():
    train(4)
    raise KeyboardInterrupt


def unhandled_exit():
    """An exit from within a step, as a callback may do."""
    train(2)

    def stop(*_):
        sys.exit(8)

    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(stop)
    train(3)


def syntax():
    train(4)
    exec(compile("x = = 1", "other.py", "exec"))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:3])
    print(digest())
