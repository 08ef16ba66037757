"""A process that was recorded calls CUDA once more where Kineto waits for it, and only there."""

from __future__ import annotations

import pytest
import torch

from profiler_ext.torch_compat.accelerator import finish_cupti_teardown


class Stream:
    """Stands for a stream of a device."""

    def __init__(self) -> None:
        self.calls = 0

    def query(self) -> bool:
        self.calls += 1
        return True


@pytest.mark.parametrize(
    ("asked", "is_initialized", "calls"),
    [("1", True, 1), ("1", False, 0), ("0", True, 0), (None, True, 0)],
)
def test_cuda_is_called_where_cupti_is_to_be_detached(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, is_initialized: bool, calls: int
) -> None:
    stream = Stream()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: is_initialized)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    if asked is not None:
        monkeypatch.setenv("TEARDOWN_CUPTI", asked)
    finish_cupti_teardown()
    assert stream.calls == calls
