"""Worker processes: of a DataLoader, of torch.multiprocessing, of pools."""

import concurrent.futures
import multiprocessing
import subprocess
import sys

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset
from training import digest, step, train


class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.full((2, 2), float(index))


class Kept:
    """Pickled by the name of its class in ``__main__``."""

    def __init__(self, value):
        self.value = value


def doubled(kept):
    return Kept(kept.value * 2)


def worker(rank, queue):
    queue.put((rank, step().hex()))


def loader(context):
    batches = DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context=context)
    for _ in range(2):
        for batch in batches:
            train(1)
            print(batch.sum().item(), flush=True)


def processes(context):
    train(2)
    chosen = torch.multiprocessing.get_context(context)
    queue = chosen.Queue()
    found = [chosen.Process(target=worker, args=(rank, queue)) for rank in range(2)]
    for process in found:
        process.start()
    print(sorted(queue.get(timeout=1_000) for _ in found), flush=True)
    for process in found:
        process.join()
    print([process.exitcode for process in found], flush=True)
    train(3)


def pool(context):
    train(2)
    chosen = multiprocessing.get_context(context)
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=chosen) as executor:
        print([each.value for each in executor.map(doubled, [Kept(1), Kept(2)])], flush=True)
    train(3)


def child_program(_):
    train(2)
    printed = subprocess.run(
        [sys.executable, "-c", "import sys; print(sys.argv, 'torch' in sys.modules); sys.exit(9)"],
        capture_output=True,
        text=True,
        check=False,
    )
    print(printed.returncode, printed.stdout, printed.stderr, flush=True)
    train(3)


if __name__ == "__main__":
    what, how = sys.argv[1:]
    {"loader": loader, "processes": processes, "pool": pool, "program": child_program}[what](how)
    print(digest())
