"""Owns which compiled graphs of this process are alive, whoever compiled them, and when."""

from __future__ import annotations

import gc
import sys
from typing import Any

from profiler_ext.torch_compat import private
from profiler_ext.torch_compat.names import artifact_names


def live_artifacts() -> list[Any]:
    """Return the compiled graphs that something still holds, and that so may run.

    Source: ``torch/_inductor/output_code.py``, ``CompiledFxGraph``.
    """
    if artifact_names.ARTIFACT.module not in sys.modules or private.unavailable(
        (artifact_names.ARTIFACT,)
    ):
        return []
    kind = artifact_names.ARTIFACT.get()
    if any(type(each) is kind for each in gc.get_objects()):
        gc.collect()  # what a reset left is held by nothing but itself
    return [each for each in gc.get_objects() if type(each) is kind]
