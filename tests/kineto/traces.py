"""The small Kineto files of these tests."""

from __future__ import annotations

import gzip
from pathlib import Path

H200 = Path(__file__).parents[1] / "fixtures" / "h200"

EVENTS = (
    b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2,\n'
    b'    "ts": 1700000000000000.123, "dur": 5.000,\n    "args": {\n'
    b'      "External id": 7, "Sequence number": 3, "Fwd thread id": 0, "stream": 9\n    }\n  }',
    b'{"ph": "s", "id": 1, "pid": 1, "tid": 2, "ts": 3.000, "cat": "ac2g", "name": "ac2g"}',
    b'{"ph": "X", "cat": "kernel", "name": "nvjet", "pid": 0, "tid": 7, "ts": 12.345, "dur": 0.085,'
    b' "args": {"External id": "7", "device": 0, "stream": 7, "correlation": 11}}',
    b'{"ph": "X", "cat": "gpu_memset", "name": "Memset", "pid": 0, "tid": 7, "ts": 13, "dur": 1.5,'
    b' "args": {"bytes": 4096, "device": 0, "stream": 7, "correlation": 12}}',
    b'{"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "P",'
    b' "ts": 1.000, "dur": 20.000}',
)

DEVICES = b'[{"id": 0, "name": "NVIDIA H200", "numSms": 132}]'


def text_of(events=EVENTS, head=b'"schemaVersion": 1,') -> bytes:
    return b"{\n" + head + b'\n"traceEvents": [\n' + b",\n  ".join(events) + b"\n]}"


def written(folder: Path, content: bytes, name: str = "t.pt.trace.json") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path
