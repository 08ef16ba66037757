"""Owns the settings of torch's that people train with, under which the same must be true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import torch._dynamo
import torch._functorch.config
import torch._inductor.config
from torch._inductor.fx_passes import pad_mm

inductor, dynamo = torch._inductor.config, torch._dynamo.config
functorch = torch._functorch.config


@contextmanager
def padded() -> Iterator[None]:
    """Have Inductor pad products on the CPU, too: else it does so on a GPU, where it is faster."""
    with (
        patch.object(pad_mm, "check_device", lambda *_: True),
        patch.object(pad_mm, "has_triton", lambda: True),
        inductor.patch(force_shape_pad=True),
    ):
        yield


SETTINGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "padded": padded,
    "little_memory": lambda: functorch.patch(activation_memory_budget=0.4),
    "modules_as_attributes": lambda: dynamo.patch(inline_inbuilt_nn_modules=False),
    "graphs_deduplicated": lambda: dynamo.patch(use_graph_deduplication=True),
    "all_recomputed": lambda: functorch.patch(aggressive_recomputation=True),
    "random_numbers_as_functions": lambda: functorch.patch(functionalize_rng_ops=True),
    "without_patterns": lambda: inductor.patch(pattern_matcher=False),
    "all_sizes_dynamic": lambda: dynamo.patch(assume_static_by_default=False),
}
"""By names for the command line; each is in force while one is entered."""
