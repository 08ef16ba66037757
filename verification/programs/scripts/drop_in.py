"""What programs do with a profiler, torch's or ours in its place; each loss is said bit for bit."""

import gc
import importlib
import logging
import os
import sys
import threading

import torch
from torch.profiler import schedule
from training import Model, digest, model, step, train, trainer

profile = importlib.import_module(os.environ["PROGRAMS_PROFILER"]).profile
EACH_SECOND = schedule(wait=0, warmup=1, active=1, repeat=2)


def report(does, *words):
    """Say what is raised."""
    try:
        does(*words)
    except BaseException as error:
        print(type(error).__name__, flush=True)


def steps(prof, count):
    for _ in range(count):
        train(1)
        prof.step()


def body_raises():
    try:
        with profile() as prof:
            train(2)
            raise KeyError("in the block")
    except KeyError as error:
        print(error, sum(event.name == "aten::mm" for event in prof.events()) > 0)
    train(2)


def body_exits():
    with profile():
        train(2)
        sys.exit(6)


def body_leaves():
    with profile():
        train(2)
        os._exit(7)


def entered_twice():
    prof = profile()

    def enters():
        with prof, prof:
            train(2)

    report(enters)
    train(2)


def used_again():
    prof = profile(schedule=EACH_SECOND)
    for _ in range(2):
        with prof:
            steps(prof, 3)


def one_in_another():
    """Of two, torch's refuses the second, and ours ends the first."""
    with profile():
        train(1)
        try:
            inner = profile()
            inner.start()
            train(1)
            inner.stop()
        except RuntimeError:
            train(1)
    train(2)


def ends_twice():
    prof = profile()
    prof.start()
    train(2)
    prof.stop()
    report(prof.stop)
    report(steps, prof, 2)


def steps_first():
    report(steps, profile(), 2)
    train(2)


def forgotten():
    prof = profile()
    prof.start()
    train(2)
    del prof
    gc.collect()
    train(2)


def never_ends():
    prof = profile()
    prof.start()
    train(4)


def in_thread():
    def records():
        with profile(schedule=EACH_SECOND) as prof:
            steps(prof, 4)

    train(1)
    thread = threading.Thread(target=records)
    thread.start()
    thread.join()
    train(2)


def next_to_training():
    """A thread records and trains nothing, as the main one trains."""
    begun, over = threading.Event(), threading.Event()

    def records():
        with profile():
            begun.set()
            over.wait(600)

    thread = threading.Thread(target=records)
    thread.start()
    begun.wait(600)
    train(3)
    over.set()
    thread.join()
    train(2)


def thread_compiles():
    """Another thread compiles anew, again and again, where recordings begin and end."""
    over = threading.Event()
    losses = []

    def compiles():
        while not over.is_set():
            losses.append(trainer(Model())().hex())

    thread = threading.Thread(target=compiles)
    thread.start()
    own = trainer(model)
    for _ in range(6):
        with profile():
            print(own().hex())
    over.set()
    thread.join()
    print(len(losses) > 0)


def exits_in_hook():
    """Autograd hands an exit on."""

    def leaves(_):
        sys.exit(8)

    with profile():
        train(2)
        value = (model.first * 2).sum()
        value.register_hook(leaves)
        value.backward()


def forks_in_block():
    """The child trains, and a thread stays with the parent."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    with profile() as prof:
        train(2)
        if (child := os.fork()) == 0:
            train(1, "child")
            report(prof.step)
            os._exit(0)
        print(os.waitpid(child, 0)[1])
        train(1)
    over.set()
    thread.join()


def generated():
    """A block that is left where the generator is thrown away."""

    def losses():
        with profile():
            while True:
                yield step().hex()

    found = losses()
    print([next(found) for _ in range(3)])
    found.close()
    train(2)


def decorated():
    """A profiler is no decorator of torch's either."""
    report(lambda: profile()(train)(1))
    train(2)


def at_exit():
    import atexit

    prof = profile()
    prof.start()
    atexit.register(prof.stop)
    train(3)


def subclassed():
    class Mine(profile):
        def step(self):
            print("mine", self.step_num)
            super().step()

    with Mine(schedule=EACH_SECOND) as prof:
        steps(prof, 4)


def odd_options():
    report(lambda: profile(no_such_option=1))
    report(lambda: profile(activities=["no activity"]))
    report(lambda: profile(schedule=3).start())
    train(2)


def kept_in_cycle():
    """It is let go of with what holds it."""
    held = []
    held.append(profile(on_trace_ready=held.count))
    with held[0]:
        train(2)
    del held
    gc.collect()
    train(2)


def compiled_around():
    """The block stands within what is compiled; torch warns of its own there."""
    torch._logging.set_logs(all=logging.ERROR)
    weight = torch.ones(4, 4)

    @torch.compile(backend="eager")
    def within(x):
        with profile():
            return (x @ weight).sum()

    report(lambda: print(within(torch.ones(4, 4)).item()))
    train(2)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print(digest())
