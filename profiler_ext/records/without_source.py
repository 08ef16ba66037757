"""Owns a recording without the text of source: of the program's lines, and of generated code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from profiler_ext.records.cells import Cell
from profiler_ext.records.compiles import Compilation
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.known_types import known
from profiler_ext.records.provenance import Gap, GraphInstance
from profiler_ext.records.python_lines import PythonLines
from profiler_ext.records.recording import Recording

_TEXT_OF_A_LINE = "code"
_OFF = Gap(GapReason.SOURCE_OFF, "source=False")
Records = TypeVar("Records")


def without_source(recording: Recording) -> Recording:
    """Return the same recording without any text of a line or cell, and without generated code.

    Args:
        recording: what was recorded.

    Returns:
        The recording. Files, line numbers and functions stay, and so do torch's own reasons of
        graph breaks and recompilations, which may quote a line.
    """
    return replace(
        recording,
        graphs=_cleared(recording.graphs, tuple[GraphInstance, ...]),
        python=_cleared(recording.python, PythonLines | None),
        compiles=_cleared(recording.compiles, tuple[Compilation, ...]),
        generated=(),
        cells=tuple(Cell(each.name) for each in recording.cells),
        gaps=recording.gaps if _OFF in recording.gaps else (*recording.gaps, _OFF),
    )


def _cleared(records: Records, kind: Any) -> Records:
    cleared: Records = msgspec.convert(_without_texts(msgspec.to_builtins(records)), known(kind))
    return cleared


def _without_texts(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {
            key: None if key == _TEXT_OF_A_LINE else _without_texts(each)
            for key, each in plain.items()
        }
    return [*map(_without_texts, plain)] if isinstance(plain, list | tuple) else plain
