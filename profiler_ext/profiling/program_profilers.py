"""``PROFILER_EXT_SESSIONS=DIR``: each recording of the program's own torch.profiler is a session.

Serving engines record when they are asked to, in workers that nothing of the user's runs in:
``/start_profile`` of vLLM and SGLang. There the class they make is replaced by ours, which records
the same, and returns the same from torch's methods.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.profiler

from profiler_ext.profiling.profiler import profile

_numbers = itertools.count()


class ProgramProfile(profile):
    """The program's profiler, whose sessions are written to a folder as well."""

    folder: Path
    _imports_compiler = False  # a server that begins a recording may wait for no import

    def __init__(
        self, *arguments: Any, on_trace_ready: Callable[..., Any] | None = None, **options: Any
    ) -> None:
        options.setdefault("keep", 1)
        self._handler = on_trace_ready
        super().__init__(*arguments, on_trace_ready=self._write, **options)

    def _write(self, _: profile) -> None:
        self._setup_guard.run("sessions", self._export)
        if self._handler is not None:
            self._handler(self)

    def _export(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{socket.gethostname()}_{os.getpid()}.{next(_numbers)}.session.pt.trace.json.gz"
        self.session.export(self.folder / name)


def install(folder: str) -> None:
    """Have what the program makes as ``torch.profiler.profile`` write sessions to a folder."""
    ProgramProfile.folder = Path(folder).absolute()
    torch.profiler.profile = ProgramProfile  # type: ignore[misc]
