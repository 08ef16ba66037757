"""Owns what Python's calls are named in a trace that was recorded ``with_stack``."""

from __future__ import annotations

import re

from profiler_ext.kineto.names import Category

_CALL_OF_MODULE = "nn.Module: "
_RECOMPUTATION = re.compile(
    r"(?:.*[/\\])?torch[/\\]utils[/\\]checkpoint\.py\(\d+\): (?:recompute_fn|backward)"
)


def is_python(category: str) -> bool:
    """Tell whether the category is that of Python's calls."""
    return category == Category.PYTHON_FUNCTION


def is_call_of_module(name: str) -> bool:
    """Tell whether Python calls a module: ``nn.Module: Linear_0``, its forward and its hooks."""
    return name.startswith(_CALL_OF_MODULE)


def is_recomputation(name: str) -> bool:
    """Tell whether a call runs a forward again: ``torch/utils/checkpoint.py(1500): recompute_fn``.

    Source: ``torch/utils/checkpoint.py``, ``recompute_fn`` and ``CheckpointFunction.backward``.
    """
    return _RECOMPUTATION.fullmatch(name) is not None
