"""A GPT that scores batches: `profiler-ext run --step-on forward --stop examples/infer.py`.

infer.py [default|reduce-overhead|eager] [later]
"""

import sys
from collections.abc import Iterator

import torch
from gpt import GPT

on_gpu = torch.cuda.is_available()
device = "cuda" if on_gpu else "cpu"
mode = sys.argv[1] if len(sys.argv) > 1 else "default"
model = GPT(12, 768, 12, 256).to(device).eval() if on_gpu else GPT(2, 64, 4, 256).eval()
net = model if mode == "eager" else torch.compile(model, mode=mode)


def score(batch: torch.Tensor) -> torch.Tensor:
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        return net(batch[:, :-1], batch[:, 1:])


def at_once(batch: torch.Tensor, count: int) -> Iterator[float]:
    for _ in range(count):
        yield score(batch).item()


def later(batch: torch.Tensor, count: int) -> Iterator[float]:
    """Yield each score when the next batch is on its way."""
    waiting = []
    for _ in range(count):
        copied = score(batch).to("cpu", non_blocking=True)
        waiting.append((copied, torch.cuda.current_stream().record_event() if on_gpu else None))
        if len(waiting) > 1:
            yield read(*waiting.pop(0))
    yield read(*waiting.pop())


def read(copied: torch.Tensor, done: torch.cuda.Event | None) -> float:
    if done is not None:
        done.synchronize()
    return copied.item()


if __name__ == "__main__":
    tokens = torch.randint(1024, (8, 257), device=device)
    print("total", sum((later if "later" in sys.argv else at_once)(tokens, 60)))
