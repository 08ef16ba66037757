"""Owns the examination of a machine: which torch, which capabilities, what is off."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass

from profiler_ext.exporters.extras import EXTRAS


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: what was looked at.
        state: ``ok``, ``off`` or ``missing``.
        detail: what was found, and what to do.
        is_fatal: nothing can be captured like this.
    """

    subject: str
    state: str
    detail: str
    is_fatal: bool = False

    def line(self) -> str:
        """Return it as a line of text."""
        return f"{self.state:8} {self.subject:28} {self.detail}"


def examine() -> tuple[Finding, ...]:
    """Look at this machine; imports torch.

    Returns:
        What was found, in the order in which it is printed.
    """
    return tuple(_findings())


def _findings() -> Iterator[Finding]:
    yield Finding("python", "ok", platform.python_version())
    try:
        import torch
    except ImportError as error:
        yield Finding("torch", "missing", f"{error}; pip install torch", is_fatal=True)
        return
    from profiler_ext.torch_compat.behaviour import untried

    said = untried()
    yield Finding("torch", "missing" if said else "ok", said or str(torch.__version__))
    yield _device()
    yield from _capabilities()
    yield from _settings()
    yield from _extras()


def _device() -> Finding:
    import torch

    if torch.cuda.is_available():
        return Finding("device", "ok", torch.cuda.get_device_name())
    if torch.accelerator.is_available():
        name = torch.accelerator.current_accelerator()
        return Finding("device", "ok", f"{name}: read as far as its trace allows")
    return Finding("device", "ok", "CPU: C++ kernels and ATen ops are the launches")


def _capabilities() -> Iterator[Finding]:
    from profiler_ext.torch_compat import behaviour, names, points

    for point in points.ALL:
        problem = point.problem()
        detail = point.serves if problem is None else f"{problem}: lost is {point.serves}"
        yield Finding(
            point.path, "ok" if problem is None else "missing", detail, problem is not None
        )
    gone = [name for name in names.ALL if not name.is_there()]
    for name in gone:
        detail = f"{name.lack()}: lost is {name.serves}"
        yield Finding(name.path, "missing", detail, name.is_vital)
    there = len(names.ALL) - len(gone)
    yield Finding("private names", "missing" if gone else "ok", f"{there} of {len(names.ALL)}")
    for each in behaviour.ALL:
        differs = each.contradiction()
        state = "missing" if differs else "ok" if each else "off"
        detail = f"torch {each.does if each else each.otherwise}"
        yield Finding(each.name, state, differs or detail)
    for flag in behaviour.TOLD_BY_NUMBER:
        detail = f"torch {flag.does if flag else flag.otherwise}"
        yield Finding(flag.name, "ok" if flag else "off", detail)


def _settings() -> Iterator[Finding]:
    from profiler_ext.torch_compat import inductor

    on = inductor.caches_enabled()
    yield Finding("FX graph cache", "ok" if on else "off", inductor.cache_dir())
    rides = os.environ.get("PROFILER_EXT_RIDE", "1") != "0"
    text = "provenance rides the cached artifacts" if rides else "PROFILER_EXT_RIDE=0"
    yield Finding("provenance in the cache", "ok" if rides else "off", text)


def _extras() -> Iterator[Finding]:
    remedies = {package: extra.install for extra in EXTRAS for package in extra.packages}
    for package, remedy in remedies.items():
        try:
            yield Finding(package, "ok", importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(package, "off", f"optional; {remedy}")
