"""A GPT that scores a batch: `profiler-ext run --step-on forward --stop examples/infer.py`."""

import sys

import torch
from gpt import GPT

device = "cuda" if torch.cuda.is_available() else "cpu"
mode = sys.argv[1] if len(sys.argv) > 1 else "default"
model = GPT(12, 768, 12, 256).to(device).eval() if device == "cuda" else GPT(2, 64, 4, 256).eval()
net = model if mode == "eager" else torch.compile(model, mode=mode)


def score(batch: torch.Tensor) -> float:
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        return net(batch[:, :-1], batch[:, 1:]).item()


if __name__ == "__main__":
    tokens = torch.randint(1024, (8, 257), device=device)
    print("total", sum(score(tokens) for _ in range(60)))
