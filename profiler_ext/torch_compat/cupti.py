"""Owns what lets a process end that was recorded and calls CUDA no more.

With ``TEARDOWN_CUPTI=1`` in the environment Kineto detaches CUPTI after a recording: a thread of
its own waits until a call of CUDA comes to its end, and the process does not end before that
thread (``teardownContext`` in ``libkineto/src/CuptiActivityApi.cpp``, which torch has under
``third_party/kineto``; https://github.com/pytorch/kineto/pull/1554).
"""

from __future__ import annotations

import os
from typing import Any

import torch


def finish_cupti_teardown() -> None:
    """Call CUDA once, without waiting for the device, where Kineto may wait for a call.

    Raises:
        RuntimeError: The device has failed before.
    """
    cuda: Any = torch.cuda  # not typed
    if os.environ.get("TEARDOWN_CUPTI") == "1" and cuda.is_initialized():
        cuda.current_stream().query()
