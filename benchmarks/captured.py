"""How benchmarks take a whole step into one CUDA graph: forward, backward and optimizer."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from benchmarks.steps import Step

_WARM_UP = 3


@dataclass(frozen=True)
class _Captured:
    """A step as one CUDA graph.

    Attributes:
        graph: what is replayed.
        step: what was captured: it holds the memory that the graph reads and writes.
    """

    graph: torch.cuda.CUDAGraph
    step: Step

    def __call__(self) -> None:
        """Replay the step."""
        self.graph.replay()


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
    return _Captured(graph, step)
