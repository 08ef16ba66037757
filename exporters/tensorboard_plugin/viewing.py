"""Owns the sentences that tell a person how to see a log folder."""

from __future__ import annotations

import shlex
from pathlib import Path

from profiler_ext.exporters.extras import TENSORBOARD


def how_to_view(log_dir: Path) -> tuple[str, ...]:
    """Return what to run, and first what to install where TensorBoard is not."""
    see = f"see it with: tensorboard --logdir {shlex.quote(str(log_dir))}"
    if TENSORBOARD.is_there:
        return (see,)
    get = f"TensorBoard is not installed into this Python; get it with: {TENSORBOARD.install}"
    return get, see
