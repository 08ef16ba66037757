"""Attributes every GPU microsecond of a compiled training step to lines and modules.

Record with ``profile``, which stands in for ``torch.profiler.profile``, or with
``profiler-ext run script.py``; read with ``load``:

    with profiler_ext.profile() as prof:
        train_step(batch)
    prof.by_line()
    profiler_ext.load("profile_out").by_module()

Names are loaded when they are first used, so that a recording is read without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from profiler_ext import autostart
from profiler_ext.version import VERSION

if TYPE_CHECKING:
    from profiler_ext.inside.observing import Inside
    from profiler_ext.joint_table import seq_table
    from profiler_ext.profiling.profiler import profile
    from profiler_ext.profiling.switch import disable, enable
    from profiler_ext.sessions.comparing import diff
    from profiler_ext.sessions.merging import MergedSession, load, merge
    from profiler_ext.sessions.session import Session

__version__ = VERSION

_HOMES = {
    "Inside": "inside.observing",
    "MergedSession": "sessions.merging",
    "Session": "sessions.session",
    "diff": "sessions.comparing",
    "disable": "profiling.switch",
    "enable": "profiling.switch",
    "load": "sessions.merging",
    "merge": "sessions.merging",
    "profile": "profiling.profiler",
    "seq_table": "joint_table",
}
__all__ = [
    "Inside",
    "MergedSession",
    "Session",
    "diff",
    "disable",
    "enable",
    "load",
    "merge",
    "profile",
    "seq_table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def load_ipython_extension(shell: Any) -> None:
    """Switch capture on and give a notebook the magic ``%%profile_ext``: ``%load_ext``."""
    import_module(f"{__name__}.profiling.switch").enable()
    import_module(f"{__name__}.integrations.ipython").register(shell)


if autostart.is_requested():
    autostart.start()
