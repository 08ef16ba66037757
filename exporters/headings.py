"""Owns the line that heads every output: what was profiled, where, and how much of it."""

from __future__ import annotations

from collections.abc import Sequence

from profiler_ext.printable import printable
from profiler_ext.records import Analysis, Settings


def heading(analysis: Analysis) -> str:
    """Return one line that says what was profiled."""
    settings = analysis.recording.settings
    rank = f"rank {settings.rank} of {settings.world_size}" if settings.world_size > 1 else ""
    return _heading(analysis, rank, analysis.launch_count)


def heading_of_ranks(analyses: Sequence[Analysis]) -> str:
    """Return one line that says what was profiled on several ranks."""
    launches = sum(analysis.launch_count for analysis in analyses)
    return _heading(analyses[0], f"{len(analyses)} ranks", launches)


def _heading(analysis: Analysis, rank: str, launches: int) -> str:
    settings = analysis.recording.settings
    parts = [
        _command_text(settings),
        f"torch {settings.torch_version}" if settings.torch_version else "",
        ", ".join(analysis.device_names),
        rank,
        f"{len(analysis.steps)} step{'s' if len(analysis.steps) != 1 else ''}",
        f"{launches:,} launches",
    ]
    return printable(" · ".join(filter(None, parts)))


def _command_text(settings: Settings) -> str:
    program = settings.command[0] if settings.command else "profile"
    # A notebook's command line is the kernel's and tells nobody anything.
    return "notebook" if "ipykernel" in program else " ".join(settings.command) or program
