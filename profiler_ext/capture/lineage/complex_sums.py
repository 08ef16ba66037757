"""Owns which nodes are one sum of gradients that are complex.

Inductor adds their real and imaginary parts: it adds nothing to each of the two gradients, views
both as real numbers, adds those, and views the sum as complex again.

Source: ``torch/_inductor/decomposition.py``, ``add``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from profiler_ext.capture.traces.creations import Creation, Creations
from profiler_ext.torch_compat import fx

_ADD = "aten.add.Tensor"


def parts_of_sums(creations: Creations, marked: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the other nodes of each sum of complex gradients, by its first one.

    Args:
        creations: how the nodes of a graph were made, in order.
        marked: those of which torch says that they sum gradients, in order.
    """
    return {
        pair[0]: (pair[1], *_until_complex(creations, marked[at + 2 :]))
        for at, pair in enumerate(pairwise(marked))
        if all(_adds_nothing(creations[name]) for name in pair)
    }


def _adds_nothing(creation: Creation) -> bool:
    return creation.target == _ADD and len(creation.inputs) == 1 and _is_complex(creation)


def _until_complex(creations: Creations, names: Sequence[str]) -> Iterator[str]:
    """Yield nodes up to the one that is complex again."""
    for name in names:
        yield name
        if _is_complex(creations[name]):
            return


def _is_complex(creation: Creation) -> bool:
    return any(tensor.is_complex() for tensor in fx.tensors(creation.meta))
