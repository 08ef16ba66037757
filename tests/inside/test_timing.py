"""Variants are timed in turn, each in the state of the cache that its own program would leave."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from profiler_ext.inside.timing import Timer

US = 1000
TOOK_US = {
    ("whole", "whole"): 132, ("whole", "without"): 126,
    ("without", "without"): 90, ("without", "whole"): 95,
    ("whole", "flush"): 140, ("without", "flush"): 99,
}  # fmt: skip


class FakeDevice:
    """Its launches take a time that depends on the launch before."""

    def __init__(self, *_: object, **__: object) -> None:
        self.before, self.made = "whole", []

    def __enter__(self) -> FakeDevice:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def launch(self, name: str) -> None:
        took_us = TOOK_US[name, self.before]
        span = SimpleNamespace(start=float(len(self.made)), elapsed_us=lambda: took_us)
        kind = SimpleNamespace(name="CUDA")
        self.made.append(SimpleNamespace(name=name, device_type=kind, time_range=span))
        self.before = name

    def zero_(self) -> None:
        self.before = "flush"

    def events(self) -> list[SimpleNamespace]:
        return self.made


@pytest.mark.parametrize(
    ("step_us", "is_cold", "whole_us", "saved_us"), [(131, False, 132, 42), (145, True, 140, 41)]
)
def test_a_variant_finds_what_itself_left_in_the_cache(
    step_us: int, is_cold: bool, whole_us: int, saved_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeDevice()

    def fresh(**_: object) -> FakeDevice:
        device.made = []
        return device

    monkeypatch.setattr(torch.profiler, "profile", fresh)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    timer = object.__new__(Timer)
    timer._flushed = device
    launching = {name: lambda name=name: device.launch(name) for name in ("whole", "without")}
    times, medians = timer.times(launching, step_us * US)
    assert medians == {"cold": 140 * US, "warm": 132 * US}
    assert times.is_cold is is_cold
    assert times.median_ns("whole") == whole_us * US
    assert times.saved("whole", "without").value_ns == saved_us * US
