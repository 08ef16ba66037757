"""What a server makes as ``torch.profiler.profile`` writes sessions, and behaves as torch's own."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import profiler_ext
from profiler_ext.profiling import program_profilers

CPU = [torch.profiler.ProfilerActivity.CPU]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that sessions are written to."""
    monkeypatch.setattr(torch.profiler, "profile", torch.profiler.profile)  # restored afterwards
    program_profilers.install(str(tmp_path / "sessions"))
    return tmp_path / "sessions"


def as_sglang(traces: Path) -> Callable[[], Any]:
    """Source: ``sglang/srt/managers/scheduler_components/profiler_manager.py``."""
    made = torch.profiler.profile(
        activities=CPU,
        with_stack=True,
        record_shapes=False,
        on_trace_ready=None,
        experimental_config=None,
    )
    made.start()

    def stop() -> None:
        made.stop()
        made.export_chrome_trace(str(traces / "own.trace.json.gz"))

    return stop


def as_vllm(traces: Path) -> Callable[[], Any]:
    """Source: ``vllm/profiler/wrapper.py``."""
    write = torch.profiler.tensorboard_trace_handler(str(traces), worker_name="own", use_gzip=True)
    made = torch.profiler.profile(
        activities=CPU, record_shapes=False, with_stack=True, on_trace_ready=write
    )
    made.start()
    return made.stop


@pytest.mark.filterwarnings("ignore")  # torch's and Kineto's
@pytest.mark.parametrize("start", [as_sglang, as_vllm])
def test_each_recording_of_a_server_is_a_session_beside_its_own_trace(
    start: Callable[[Path], Callable[[], Any]], folder: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        stop = start(tmp_path)
        torch.ones(8, 8) @ torch.ones(8, 8)
        stop()
    sessions = [profiler_ext.load(path) for path in sorted(folder.iterdir())]
    assert [list(each.launches().name) for each in sessions] == 2 * [
        ["aten::ones", "aten::ones", "aten::matmul"]
    ]
    for path in tmp_path.glob("own*.json.gz"):
        names = {
            each.get("name")
            for each in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        }
        assert "aten::mm" in names
