"""What tests that compile in this process share: a fresh start, and a cheap function."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import profiler_ext
from profiler_ext.capture.hooks.installing import Capture
from profiler_ext.profiling import switch

with warnings.catch_warnings():  # torch's own modules warn of what they use of each other
    warnings.simplefilter("ignore")
    import torch
    import torch._dynamo
    import torch._inductor.compile_fx


@pytest.fixture
def fresh_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No hooks, nothing compiled, an empty cache; the value is the cache's folder."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    forget_compiled()
    yield tmp_path / "cache"
    forget_compiled()


def forget_compiled() -> None:
    """Switch capture off, reset torch, and remove what that leaves of twice broken code.

    Of such code torch has counted a reference too many (2.13), so that the globals which hold its
    compiled graphs are never cleaned up: ``torch/_dynamo/utils.py``, ``CleanupManager``.
    """
    profiler_ext.disable()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for hooks in list(torch._dynamo.utils.CleanupManager.instance.values.values()):
        for hook in hooks:
            hook()
        hooks.clear()


def twice(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply twice: matrix products are library calls, which need no C++ compiler."""
    first = a @ b
    return first @ b


TWICE_LINES = (twice.__code__.co_firstlineno + 2, twice.__code__.co_firstlineno + 3)


def train_once(*, fresh: bool = True) -> torch.Tensor:
    """Run :func:`twice` forward and backward, compiled anew or not; return the gradient."""
    if fresh:
        torch._dynamo.reset()
    torch.manual_seed(0)
    a, b = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8)
    torch.compile(twice)(a, b).sum().backward()
    assert a.grad is not None
    return a.grad


def expected_gradient() -> torch.Tensor:
    """Return what :func:`train_once` must return."""
    torch.manual_seed(0)
    torch.randn(8, 8)
    b = torch.randn(8, 8)
    return torch.ones(8, 8) @ b.T @ b.T


def capture() -> Capture:
    """Return the capture that is on."""
    found = switch.current()
    assert found is not None
    return found


def cache_keys(cache: Path) -> list[str]:
    """Keys of torch's own caches, as folders on disk."""
    found = [*cache.glob("fxgraph/*/*"), *cache.glob("aotautograd/*")]
    return sorted(str(path.relative_to(cache)) for path in found)


def generated_code(cache: Path) -> list[str]:
    """Text of the generated modules; the counter of graphs in this process is left out."""
    texts = (path.read_text() for path in cache.glob("*/*.py"))
    return sorted(re.sub(r"# AOT ID: .*", "", text) for text in texts)
