"""Owns which files of a folder are traces that torch's own profiler wrote."""

from __future__ import annotations

import re
from pathlib import Path

from profiler_ext.kineto.source import is_folder, listed, looks_like_trace

_TRACE = re.compile(r".+\.pt\.trace\.json(\.gz)?")
_JSON = re.compile(r".+\.json(\.gz)?")


def plain_traces(folder: Path) -> list[Path]:
    """Return the traces in a folder that torch's profiler wrote, by name.

    Those that are called as ``tensorboard_trace_handler`` calls them; where there is none, each
    file of JSON that begins as a trace does.

    Args:
        folder: the folder.
    """
    files = [each for each in listed(folder) if each.is_file()] if is_folder(folder) else []
    named = [each for each in files if _TRACE.fullmatch(each.name)]
    return named or [
        each for each in files if _JSON.fullmatch(each.name) and looks_like_trace(each)
    ]
