"""Owns the sentence that tells a person how to see a trace, with the GPUs' groups unfolded.

A trace cannot say which groups are open (https://github.com/google/perfetto/issues/1342); the
viewer's address can, by its commands for automation.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

_GROUPS = "^((rank [0-9]+|base|head): )*(GPU|CPU compute)"
_UNFOLD = json.dumps(
    [{"id": "dev.perfetto.ExpandTracksByRegex", "args": [_GROUPS]}], separators=(",", ":")
)
VIEWER = f"https://ui.perfetto.dev/#!/?startupCommands={quote(_UNFOLD, safe='')}"


def how_to_view(trace: Path) -> tuple[str, ...]:
    """Return where a trace can be opened.

    Args:
        trace: the file.
    """
    return (f"open {trace.name} at {VIEWER} which unfolds the GPU; it stays on this machine",)
