"""What a program may do with frames, threads and code in a recorded step."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import types
import weakref

import torch
from stepping import STEPS, Block, counted, model, train


def forks():
    def use():
        child = os.fork()
        if child == 0:
            counted()
            model(torch.ones(2, 8))
            watching = [sys.monitoring.get_tool(number) for number in range(6)]
            os._exit(7 if watching == [None] * 6 else 8)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    train(use)


def starts():
    """Subprocesses, also with code that runs in the child."""

    def use():
        command = [sys.executable, "-S", "-c", "print('child')"]
        for options in ({}, {"preexec_fn": counted}):
            print(subprocess.run(command, capture_output=True, text=True, **options).stdout)

    train(use)


def threads():
    """Threads that end and whose ids are given again."""

    def use():
        found = []

        def run(number):
            found.append(counted(str(number)))

        for number in range(1000):
            thread = threading.Thread(target=run, args=(number,))
            thread.start()
            thread.join()
        print(len(found), sum(found))

    train(use)


def at_once():
    """Threads that run lines while the recording begins and ends."""
    go_on, counts = [True], [0, 0, 0]

    def run(number):
        while go_on:
            counts[number] += counted() > 0
            exec("def made():\n    return 1\nmade()", {})
            time.sleep(0)

    found = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in found:
        thread.start()
    train(lambda: time.sleep(0.01), 12)
    go_on.clear()
    for thread in found:
        thread.join()
    print(all(counts))


def generators():
    def numbers(log):
        try:
            for each in range(5):
                try:
                    yield each
                except KeyError as error:
                    log.append(str(error))
                    yield -1
        except GeneratorExit:
            log.append("closed")
            raise
        finally:
            log.append("over")

    def outer(log):
        yield from numbers(log)

    def use():
        log = []
        for make in (numbers, outer):
            found = make(log)
            log += [next(found), found.throw(KeyError("k")), next(found)]
            try:
                found.throw(ValueError("v"))
            except ValueError as error:
                log.append(error.__traceback__.tb_lineno)
            open_one = make(log)
            next(open_one)
            open_one.close()
        try:
            next(each for each in () if each)
        except StopIteration:
            log.append("stop")
        print(log)

    train(use)


def deep(n):
    return 0 if n == 0 else 1 + deep(n - 1)


def endless():
    return endless()


def room():
    """Return how many calls are left, of those that Python allows by default."""
    depth, frame = 0, sys._getframe(1)
    while frame:
        depth, frame = depth + 1, frame.f_back
    return 1000 - depth


def recursion():
    """What is not too deep without us is not too deep with us."""

    def use():
        for _ in range(3):
            left = room()
            print(deep(left - 1) - left)
            try:
                endless()
            except RecursionError as error:
                print(error)

    train(use)


def limits():
    """A program that sets the limit of recursion itself, in a step."""
    limit = sys.getrecursionlimit()

    def use():
        sys.setrecursionlimit(limit + 500)

    train(use, 2)
    train(lambda: None, 3)
    print(sys.getrecursionlimit() - limit)


def alarms():
    """A handler that raises, out of whatever is running: each is the program's."""

    class Late(Exception):
        pass

    def handler(number, frame):
        raise Late

    def loop():
        while True:
            counted()
            exec("def made():\n    return 1\nmade()", {})

    signal.signal(signal.SIGALRM, handler)

    def use():
        found = 0
        for _ in range(200):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0007)
                loop()
            except Late:
                found += 1
        print(found)

    train(use)


def leaves():
    train(counted, 2)
    train(lambda: os._exit(3))


def collected():
    """The garbage collector calls Python code; so do objects that go."""
    calls = []
    gc.callbacks.append(lambda phase, info: calls.append(phase))

    class Gone:
        def __del__(self):
            counted()
            calls.append("gone")

    def use():
        calls.clear()
        first, second = Gone(), Gone()
        first.other, second.other = second, first
        weak = weakref.finalize(first, calls.append, "weak")
        del first, second
        gc.collect()
        print(sorted(calls), weak.alive)

    gc.disable()
    train(use)


def kept():
    """What a step made, and what called it holds, is gone when they are over, collected or not."""
    gc.disable()
    found = []

    def use():
        own = Block()
        values = own(torch.ones(2, 8))
        found.extend((weakref.ref(own), weakref.ref(values)))

    def made():
        held = Block()
        train(use, 1)
        found.append(weakref.ref(held))

    for _ in range(STEPS):
        made()
    print([each() is None for each in found])


def coroutines():
    async def one(number):
        await asyncio.sleep(0)
        counted()
        if number == 2:
            raise ValueError(number)
        return number

    async def many():
        async def each():
            for number in range(3):
                yield number
                await asyncio.sleep(0)

        print([number async for number in each()])
        return await asyncio.gather(*map(one, range(4)), return_exceptions=True)

    train(lambda: print(asyncio.run(many())))


def replaced():
    """Code that is made, replaced and dropped while it runs."""

    def one():
        return 1

    def two():
        return 2

    def use():
        space = {}
        exec(compile("def f():\n    return 3\n", __file__, "exec"), space)
        one.__code__, two.__code__ = two.__code__, one.__code__
        module = types.ModuleType("made_here")
        exec("def g():\n    return 4", vars(module))
        gone = weakref.ref(module)
        print(one(), two(), space["f"](), module.g(), eval("5"))
        del module
        print(gone() is None)

    train(use)


def hot():
    """Lines and calls that come too fast to be written down."""

    def numbers(count):
        yield from range(count)

    def use():
        total = 0
        for number in range(200_000):
            total += counted("y") if number % 2 else number
        print(total + sum(numbers(200_000)))

    train(use)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print([sys.monitoring.get_tool(number) for number in range(6)])
