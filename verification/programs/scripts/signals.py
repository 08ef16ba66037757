"""Signals: by default, handled by the script, amid a compile, and while a session is made."""

import atexit
import faulthandler
import os
import signal
import sys
import threading
import time

import torch
from training import digest, step, train

RECORDED = 3  # steps until the last recorded one has ended: one skipped, two recorded


def send(number, delay=0.0):
    """Send a signal to this process, at once or a while later."""
    if not delay:
        os.kill(os.getpid(), number)
        return
    timer = threading.Timer(delay, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


def recording(name):
    """By default, amid the recorded steps."""
    train(2)
    send(getattr(signal, name))
    time.sleep(20)
    print("not reached by what ends a program")


def writing(name, delay):
    """By default, after the last recorded step, while the session is made."""
    train(RECORDED - 1)
    send(getattr(signal, name), float(delay))
    step()
    time.sleep(60)
    print("not reached")


def finishing(name, delay):
    """The script is over, and the session is made only then."""
    train(2)
    send(getattr(signal, name), float(delay))
    atexit.register(until_interrupted, float(delay) + 0.5)


def until_interrupted(seconds):
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        return


def late(delay):
    """The script is over before its time limit, whose handler is no longer there by then."""
    train(2)
    signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, float(delay))
    atexit.register(until_late, float(delay) + 0.5)


def too_late(number, frame):
    signal.signal(number, signal.SIG_IGN)
    raise TimeoutError("too late")


def until_late(seconds):
    try:
        time.sleep(seconds)
    except TimeoutError:
        return


def caught(delay):
    """The script catches Ctrl-C and goes on."""
    train(RECORDED - 1)
    try:
        send(signal.SIGINT, float(delay))
        step()
        time.sleep(60)
    except KeyboardInterrupt:
        print("caught", flush=True)
    train(2)
    print(digest())


def twice():
    """The second Ctrl-C, sent amid the answer to the first."""
    train(RECORDED - 1)
    send(signal.SIGINT, 0.3)
    send(signal.SIGINT, 0.35)
    step()
    time.sleep(60)


def handled(name):
    """A handler of the script's own, which ends the program its own way."""

    def handler(number, frame):
        print("handled", number, type(frame).__name__, flush=True)
        sys.exit(9)

    print(signal.signal(getattr(signal, name), handler), flush=True)
    train(RECORDED - 1)
    send(getattr(signal, name), 0.2)
    step()
    time.sleep(60)


def counted(name):
    """A handler that lets the program go on."""
    received = []
    signal.signal(getattr(signal, name), lambda number, frame: received.append(number))
    for _ in range(5):
        train(1)
        send(getattr(signal, name))
    print(received, digest())


def alarm():
    """A handler that raises, out of whatever is running, at any moment."""

    class Late(Exception):
        pass

    def handler(number, frame):
        raise Late

    train(RECORDED - 1)
    signal.signal(signal.SIGALRM, handler)
    found = 0
    for number in range(8):
        signal.setitimer(signal.ITIMER_REAL, 0.02 + 0.03 * number)
        try:
            step()
            time.sleep(2)
        except Late:
            found += 1
    print(found, digest())


def compiling(name):
    """A signal amid a compile, by a backend of the script's."""
    from torch._inductor.compile_fx import compile_fx

    def backend(gm, inputs):
        if len(done) == RECORDED - 1:
            send(getattr(signal, name))
            time.sleep(0.1)
        return compile_fx(gm, inputs)

    done = []
    weight = torch.ones(8, 8, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    @torch.compile(backend=backend, dynamic=False)
    def forward(x):
        return x @ weight @ weight

    for n in (2, 2, 3, 3, 4):
        loss = forward(torch.ones(n, 8)).sum()
        loss.backward()
        optimizer.step()
        done.append(loss.item())
        print(loss.item(), flush=True)


def seen():
    """What the script sees of the handlers, at its start and at its end."""
    numbers = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
    print([(int(n), str(signal.getsignal(n)).partition(" at ")[0]) for n in numbers])
    train(5)
    print([(int(n), str(signal.getsignal(n)).partition(" at ")[0]) for n in numbers])


def ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    train(2)
    send(signal.SIGINT, 0.2)
    train(3)
    time.sleep(0.5)
    print(digest())


def fault():
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR2, file=sys.stdout)
    train(2)
    train(3)
    print(faulthandler.is_enabled())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
