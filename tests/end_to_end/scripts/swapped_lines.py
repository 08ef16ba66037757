"""Two functions that share a cache entry although their lines are swapped.

python swapped_lines.py OUT FUNCTION...   profiles each function and saves a session of it.
"""

import sys
from pathlib import Path

import torch

import profiler_ext


def first(x):
    y = x * 3  # first: y
    z = x.detach() * 3  # first: z
    return y, z


def second(x):
    z = x.detach() * 3  # second: z
    y = x * 3  # second: y
    return y, z


def profile(name, folder):
    compiled = torch.compile(globals()[name])
    x = torch.randn(64, 64, requires_grad=True)
    compiled(x)[0].sum().backward()
    with profiler_ext.profile(strict=True) as prof:
        y, _ = compiled(x)
        y.sum().backward()
    prof.session.save(folder / name)


if __name__ == "__main__":
    profiler_ext.enable(strict=True)
    for name in sys.argv[2:]:
        profile(name, Path(sys.argv[1]))
