"""Threads that compile at once, train while the main thread ends, or are left behind."""

import asyncio
import os
import signal
import sys
import threading
import time

from tqdm import tqdm
from training import Model, digest, step, train, trainer


def at_once():
    models = [Model() for _ in range(3)]
    losses = {}

    def run(number):
        own = trainer(models[number])
        losses[number] = [own().hex() for _ in range(3)]

    found = [threading.Thread(target=run, args=(n,)) for n in range(3)]
    for thread in found:
        thread.start()
    for thread in found:
        thread.join()
    print(sorted(losses.items()), [digest(each) for each in models])
    train(3)


def outlives_main():
    """The main thread is over while another trains: Python waits for it."""

    def run():
        train(6, "thread")
        print(digest(), flush=True)

    tqdm.monitor_interval = 0  # torch counts nodes with it; at exit it has no thread of its own
    threading.Thread(target=run).start()
    print("main is over", flush=True)


def daemon():
    """A thread that Python does not wait for."""

    def run():
        while True:
            time.sleep(0.01)

    threading.Thread(target=run, daemon=True).start()
    train(5)


def loop():
    """An asyncio program with a signal handler of the loop's."""

    async def main():
        received = []
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, received.append, "received")
        for number in range(6):
            print(step().hex(), flush=True)
            if number == 2:
                os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        print(received, flush=True)

    asyncio.run(main())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
