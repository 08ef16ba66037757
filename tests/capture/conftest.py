"""Owns what every test of capture starts from: no hooks, nothing compiled, an empty cache."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import profiler_ext

with warnings.catch_warnings():  # torch's own modules warn of what they use of each other
    warnings.simplefilter("ignore")
    import torch._dynamo
    import torch._inductor.compile_fx


@pytest.fixture
def fresh_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a process-wide fresh start; the value is Inductor's cache folder."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    torch._dynamo.reset()
    profiler_ext.disable()
    yield tmp_path / "cache"
    profiler_ext.disable()
    torch._dynamo.reset()
