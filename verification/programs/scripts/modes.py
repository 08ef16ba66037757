"""What is run with its calls as steps, recorded again and again, or ended with its last step."""

import signal
import sys
import threading

import torch
from training import Model, digest, train, trainer

RECORDED = 3  # steps until the last recorded one has ended: one skipped, two recorded


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x, what=None):
        self.calls += 1
        if what is not None and self.calls == RECORDED:
            what()
        return self.second(torch.relu(self.first(x)))


net = Net()


def evaluate(what=None):
    """Call a model, and what a test has put into its third call."""
    with torch.no_grad():
        value = net(torch.ones(2, 4), what).sum().item()
    print(value.hex(), flush=True)
    return value


def fails():
    raise ValueError("in the forward")


def interrupts():
    signal.raise_signal(signal.SIGINT)


def evaluates(what=None):
    named = {"fails": fails, "interrupts": interrupts, None: None}[what]
    for _ in range(6):
        evaluate(named)


def catches(what):
    for _ in range(6):
        try:
            evaluate({"fails": fails, "interrupts": interrupts}[what])
        except (ValueError, KeyboardInterrupt) as error:
            print("caught", type(error).__name__, flush=True)


def threads():
    several = [threading.Thread(target=evaluates) for _ in range(3)]
    for each in several:
        each.start()
        each.join()


def compiles():
    global net
    inner = net
    net = torch.compile(inner, backend="eager")
    evaluates()
    print(type(net).__name__, inner.calls)


def tokens(count):
    for _ in range(count):
        yield evaluate()


def generates():
    for count in (1, 3, 2, 1):
        print(sum(tokens(count)).hex())
    next(tokens(5))  # never exhausted


def recursive(depth=2):
    return recursive(depth - 1) + 1.0 if depth else evaluate()


def recurses():
    print([recursive().hex() for _ in range(4)])


def monitored():
    """The program's own tool, which hears no more and no less of what it disabled."""
    received = []
    monitoring = sys.monitoring
    monitoring.use_tool_id(4, "own")
    monitoring.register_callback(
        4, monitoring.events.PY_START, lambda code, _: received.append(code.co_name)
    )
    monitoring.set_local_events(4, evaluate.__code__, monitoring.events.PY_START)
    evaluates()
    monitoring.free_tool_id(4)
    print(received)


def trains(what=None):
    """Regions that are open over several recordings."""
    own = trainer(Model())
    for epoch in range(5):
        with torch.profiler.record_function("epoch"):
            for n in range(4):
                print(own().hex(), flush=True)
                if (epoch, n) == (2, 1) and what == "fails":
                    fails()
                if (epoch, n) == (2, 1) and what == "interrupts":
                    interrupts()
    print(digest())


def stopped(how):
    """In the run without us the program ends itself where ``--stop`` would."""
    if "profiler_ext" not in sys.modules:
        _end_after(RECORDED)
    try:
        train(9)
    except SystemExit as error:
        print("an exit", error.code, flush=True)
        if how == "here":
            raise
    except Exception:
        print("no exit is an Exception")
    finally:
        print("finally", flush=True)
    if how == "otherwise":
        sys.exit(7)
    (fails if how == "fails" else interrupts)()


def _end_after(steps):
    from torch.optim.optimizer import register_optimizer_step_post_hook

    ended = []

    def end(*_):
        ended.append(1)
        if len(ended) == steps:
            raise SystemExit(0)

    register_optimizer_step_post_hook(end)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
