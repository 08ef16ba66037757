"""The settings of torch's that people train with, under which the same must be true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import torch._dynamo
import torch._functorch.config
import torch._inductor.config
from torch._inductor.fx_passes import pad_mm, post_grad

inductor, dynamo = torch._inductor.config, torch._dynamo.config
functorch = torch._functorch.config


_BEFORE = ("linear", "linear_lhs", "layernorm", "tanh", "relu", "sigmoid")
_AFTER = ("linear_post_grad", "aten_add", "aten_mul", "aten_sub", "aten_tanh", "aten_sigmoid")


@contextmanager
def padded() -> Iterator[None]:
    """Have Inductor pad products on the CPU, too: else it does so on a GPU, where it is faster."""
    with (
        patch.object(pad_mm, "check_device", lambda *_: True),
        patch.object(pad_mm, "has_triton", lambda: True),
        inductor.patch(force_shape_pad=True),
    ):
        yield


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Have products padded, and those apart from their bias whose sum goes on into other ops."""
    with padded(), patch.object(post_grad, "is_gpu", lambda _: True):
        yield


SETTINGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "padded": padded,
    "as_on_a_gpu": as_on_a_gpu,
    "all_sizes_dynamic": lambda: dynamo.patch(assume_static_by_default=False),
    "little_memory": lambda: functorch.patch(activation_memory_budget=0.0),
    "all_recomputed": lambda: functorch.patch(aggressive_recomputation=True),
    "nothing_shared": lambda: functorch.patch(cse=False),
    "modules_as_attributes": lambda: dynamo.patch(inline_inbuilt_nn_modules=False),
    "without_patterns": lambda: inductor.patch(pattern_matcher=False),
    "batched": lambda: inductor.patch(
        pre_grad_fusion_options={f"batch_{op}": {} for op in _BEFORE},
        post_grad_fusion_options={f"batch_{op}": {} for op in _AFTER},
    ),
}
"""By names for the command line; each is in force while one is entered."""
