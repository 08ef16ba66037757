"""Owns the sentences that tell a person how to see a log folder."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from pathlib import Path

_INSTALL = "pip install tensorboard torch-tb-profiler"


def how_to_view(log_dir: Path) -> tuple[str, ...]:
    """Return what to run, and first what to install where TensorBoard is not."""
    see = f"see it with: tensorboard --logdir {shlex.quote(str(log_dir))}"
    if find_spec("tensorboard") is not None:
        return (see,)
    return f"TensorBoard is not installed into this Python; get it with: {_INSTALL}", see
