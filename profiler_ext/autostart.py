"""Owns ``PROFILER_EXT=1``: capture is switched on as soon as a process has imported torch.

An installed copy is asked for it at the start of every Python process
(``profiler_ext_autostart.pth``); a process that never imports torch pays nothing.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from profiler_ext import renaming, torch_import

VARIABLE = "PROFILER_EXT"


def is_requested() -> bool:
    """Tell whether the environment asks for early capture in this process."""
    worker = any("compile_worker" in word for word in sys.orig_argv)
    return os.environ.get(VARIABLE, "0") not in ("", "0") and not worker


def at_start() -> None:
    """Begin in a process that has imported nothing yet, and leave our name to the program."""
    start()
    for name in (__name__, renaming.__name__, torch_import.__name__, renaming.NAME):
        sys.modules.pop(name, None)


def start() -> None:
    """Switch capture on now if torch is there, else when it has been imported."""
    if "torch" in sys.modules or not torch_import.is_pending():
        torch_import.on_torch_import(_enable)


def _enable() -> None:
    name = renaming.load_under_alias() if renaming.is_shadowed([]) else renaming.NAME
    # Nobody has asked for a recording: what attaches CUPTI waits until somebody does.
    import_module(f"{name}.profiling.switch").enable(learn=False)
