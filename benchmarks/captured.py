"""Owns how benchmarks take a whole step into one CUDA graph: forward, backward and optimizer."""

from __future__ import annotations

import torch

from benchmarks.steps import Step

_WARM_UP = 3


def captured(step: Step) -> Step:
    """Return a step that replays one CUDA graph of all that it launches; on a CPU the step itself.

    Args:
        step: reads and writes the same memory each time, and asks for no value.
    """
    if not torch.cuda.is_available():
        return step
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(_WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
