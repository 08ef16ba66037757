"""Owns when a part of Dynamo's graph begins to be compiled by itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch.fx

from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.traces.parts import part_of
from profiler_ext.torch_compat import process


def begin_part(compiles: Compiles, gm: Any) -> None:
    """Note what a backend has compiled now: all of Dynamo's graph, or a part of it.

    Marked regions are parts of AOTAutograd's graph, and have a description of their own; compiled
    autograd copies its graph, and cuts none.

    Args:
        compiles: what is known of the compiles under way.
        gm: what is compiled.
    """
    is_region = compiles.outer_graph is not None or compiles.region is not None
    if (
        isinstance(gm, torch.fx.GraphModule)
        and not is_region
        and not process.in_compiled_autograd()
    ):
        compiles.begin_part(partial(part_of, gm))
