"""The cases of bytes: compression, encodings, other tools' files, and odd places."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import socket
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from verification.hostile.making import Case, content, dumped, made, session, text

_GB = 1 << 30
_MEMBER = 64 << 20


def _packed() -> bytes:
    return gzip.compress(text(), mtime=0)


def _of_blanks(size: int, before: bytes = b"", after: bytes = b"") -> Callable[[], bytes]:
    """Return the maker of gzip in many members, since packing so much would take a minute."""

    def build() -> bytes:
        blank = gzip.compress(b" " * _MEMBER, mtime=0)
        return gzip.compress(before) + blank * (size // _MEMBER) + gzip.compress(after)

    return build


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("trace.json", text())
    return file.getvalue()


def _tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        info = tarfile.TarInfo("trace.json")
        info.size = len(text())
        archive.addfile(info, io.BytesIO(text()))
    return file.getvalue()


def _fifo(folder: Path) -> Path:
    path = folder / "case.json"
    os.mkfifo(path)
    return path


def _socket(folder: Path) -> Path:
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(path))
    return path


def _loop(folder: Path) -> Path:
    path = folder / "case.json"
    path.symlink_to(path)
    return path


def _folder_with(make: Callable[[Path], object]) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        make(folder / "session.pt.trace.json.gz")
        return folder

    return build


def _ranks(folder: Path) -> Path:
    for rank in (0, 1):
        own = folder / f"rank_{rank}"
        own.mkdir()
        (own / "session.pt.trace.json.gz").write_bytes(_packed())
    return folder


def _perfetto(folder: Path) -> Path:
    import profiler_ext

    source = content(text())(folder)
    return profiler_ext.load(source).export(folder / "trace.pftrace")


def _sqlite(folder: Path) -> Path:
    path = folder / "report.sqlite"
    with sqlite3.connect(path) as base:
        base.execute("create table CUPTI_ACTIVITY_KIND_KERNEL (start int, end int)")
    return path


def _attribution(folder: Path) -> Path:
    import profiler_ext

    source = content(text())(folder)
    exported = profiler_ext.load(source).export(folder / "logs")
    return next(exported.parent.glob("*.attribution.json.gz"))


DAMAGED = {
    "empty file": Case(content(b""), "is empty"),
    "blank file": Case(content(b" \n\t "), "is empty"),
    "empty gzip": Case(content(gzip.compress(b"")), "is empty"),
    "gzip cut in its header": Case(made(lambda: _packed()[:5]), "cut short"),
    "gzip cut in its data": Case(made(lambda: _packed()[:3000]), "cut short"),
    "gzip cut in its checksum": Case(made(lambda: _packed()[:-5]), "cut short"),
    "gzip with a wrong checksum": Case(
        made(lambda: _packed()[:-8] + b"\0" * 4 + _packed()[-4:]), "damaged gzip"
    ),
    "gzip with a wrong length": Case(made(lambda: _packed()[:-4] + b"\0" * 4), "damaged gzip"),
    "gzip with bytes after it": Case(made(lambda: _packed() + b"rest"), "damaged gzip"),
    "gzip with zeros after it": Case(made(lambda: _packed() + b"\0" * 512)),
    "gzip in two members": Case(
        made(lambda: gzip.compress(text()[:5000]) + gzip.compress(text()[5000:]))
    ),
    "gzip within gzip": Case(made(lambda: gzip.compress(_packed())), "gzip"),
    "gzip garbage": Case(content(b"\x1f\x8b\x08\x00" + b"\xff" * 400), "damaged gzip"),
    "gzip of another method": Case(content(b"\x1f\x8b\x07\x00" + b"\0" * 40), "damaged gzip"),
    "8 GB of spaces in gzip": Case(made(_of_blanks(8 * _GB)), "unpack"),
    "8 GB of spaces within JSON in gzip": Case(
        made(_of_blanks(8 * _GB, b'{"schemaVersion": 1, "traceEvents": [', b"]}")), "unpack"
    ),
    "a name of 2 GB in gzip": Case(
        made(_of_blanks(2 * _GB, b'{"schemaVersion": 1, "traceEvents": [{"name": "', b'"}]}')),
        "unpack",
    ),
    "bzip2": Case(made(lambda: bz2.compress(text())), "bzip2"),
    "xz": Case(made(lambda: lzma.compress(text())), "xz"),
    "zstd": Case(content(b"\x28\xb5\x2f\xfd" + b"\1" * 100), "Zstandard"),
    "zip": Case(made(_zip), "zip"),
    "tar in gzip": Case(made(_tar), "tar data"),
    **{
        name: Case(made(lambda name=name: text().decode().encode(name)), "is UTF-16 or UTF-32 text")
        for name in ("UTF-16", "UTF-16-LE", "UTF-16-BE", "UTF-32", "UTF-32-LE", "UTF-32-BE")
    },
    "UTF-8 with a byte order mark": Case(made(lambda: b"\xef\xbb\xbf" + text())),
    "Latin-1 in a name": Case(made(lambda: text().replace(b"aten::mm", b"at\xe9n::mm"))),
    "NUL bytes": Case(content(b"\0" * 4096), "not JSON"),
    "a NUL byte in a name": Case(made(lambda: text().replace(b"aten::mm", b"at\0n::mm")), "JSON"),
    "random bytes": Case(content(bytes(range(3, 256)) * 9), "not JSON"),
    "text": Case(content(b"hello, world\n"), "not JSON"),
    "HTML": Case(content(b"<!DOCTYPE html><html></html>"), "report.html"),
}
PLACES = {
    "a FIFO": Case(_fifo, "no regular file"),
    "a socket": Case(_socket, "no regular file"),
    "a device without end": Case(lambda folder: Path("/dev/zero"), "no regular file"),
    "a link to itself": Case(_loop, "cannot read"),
    "nothing there": Case(lambda folder: folder / "absent.json", "cannot read"),
    "a name too long": Case(lambda folder: folder / ("x" * 5000), "cannot read"),
    "a NUL in the path": Case(lambda folder: Path(f"{folder}/a\0b"), "cannot read"),
    "an empty folder": Case(lambda folder: folder, "holds no"),
    "a folder whose session is a FIFO": Case(_folder_with(os.mkfifo), "holds no"),
    "a folder whose session is a folder": Case(_folder_with(Path.mkdir), "holds no"),
    "two ranks of one number": Case(_ranks, "two sessions are of rank 0"),
}
_CHROME = [{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]
WRITERS = {
    "our own Perfetto trace": Case(_perfetto, "Perfetto"),
    "our own attribution for TensorBoard": Case(_attribution, "attribution"),
    "a SQLite file of Nsight Systems": Case(_sqlite, "SQLite"),
    "a report of Nsight Systems": Case(content(b"NSYS-REP" + b"\x01" * 99), "Nsight Systems"),
    "JSON lines of Nsight Systems": Case(
        content(b'{"Type":79,"NvtxEvent":{"Timestamp":"1"}}\n{"Type":80,"CudaEvent":{}}\n'),
        "Nsight",
    ),
    "a list of Chrome events": Case(content(json.dumps(_CHROME).encode()), "list"),
    "a trace of Chrome's": Case(
        content(dumped({"traceEvents": _CHROME, "metadata": {"source": "DevTools"}})), "DevTools"
    ),
    "a trace of JAX": Case(
        content(
            dumped(
                {
                    "displayTimeUnit": "ns",
                    "metadata": {"highres-ticks": True},
                    "traceEvents": [*_CHROME, {}],
                }
            )
        ),
        "XProf",
    ),
    "a trace of VizTracer": Case(
        content(dumped({"traceEvents": _CHROME, "viztracer_metadata": {"version": "1.0"}})),
        "VizTracer",
    ),
    "a trace of nobody": Case(content(dumped({"traceEvents": _CHROME})), "schemaVersion"),
    "an execution trace": Case(
        content(dumped({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []})), "execution trace"
    ),
    "a profile of speedscope": Case(
        content(
            dumped({"$schema": "https://www.speedscope.app/file-format-schema.json", "shared": {}})
        ),
        "speedscope",
    ),
    "an answer for programs": Case(content(dumped({"answer": "report"})), "answer of ours"),
    "a table of ours in CSV": Case(
        content(b'rank,launch,name\n0,0,"void gemm<float, 1>"\n'), "CSV; of a session"
    ),
    "a table in Parquet": Case(content(b"PAR1" + b"\x15" * 99 + b"PAR1"), "Parquet; of a session"),
    "a profile of XProf": Case(
        content(b"\n\xe2\x93\xb1\x01\x08\x01\x12\x09/host:CPU" + b"\x1a" * 99), "XProf"
    ),
    "a tar archive": Case(content(b"trace.json".ljust(257, b"\0") + b"ustar\x0000"), "tar"),
    "a trace of torch_npu": Case(
        content(dumped([{"ph": "M", "name": "process_name", "args": {"name": "Ascend Hardware"}}])),
        "torch_npu's trace_view.json",
    ),
    "a log of TORCH_TRACE": Case(
        content(
            b"V1206 15:18:15.925000 1500233 torch/_logging/structured.py:23] "
            b'{"str": ["train.py", 0]}\n'
        ),
        "a log of TORCH_TRACE",
    ),
    "a recording of perf": Case(content(b"PERFILE2" + b"\0" * 99), "perf"),
    "a recording of memray": Case(content(b"memray\0" + b"\x01" * 99), "memray"),
    "a CPU profile of V8": Case(content(dumped({"nodes": [], "timeDeltas": []})), "V8"),
    "a profile of pyinstrument": Case(
        content(dumped({"session": {}, "root_frame": {}})), "pyinstrument"
    ),
    "a trace of OpenTelemetry": Case(content(dumped({"resourceSpans": []})), "OpenTelemetry"),
    "a profile of rocprofv3": Case(content(dumped({"rocprofiler-sdk-tool": []})), "rocprofv3"),
    "a memory snapshot": Case(content(pickle.dumps({"segments": []})), "pickle"),
    "a checkpoint of torch": Case(made(_zip), "zip"),
    "HDF5": Case(content(b"\x89HDF\r\n\x1a\n" + b"\0" * 99), "not JSON"),
    "JSON of something else": Case(content(b'{"name": "package", "version": "1"}'), "traceEvents"),
    "a JSON list": Case(content(b"[1, 2, 3]"), "list"),
    "a JSON text": Case(content(b'"hello"'), "not"),
    "a JSON number": Case(content(b"42"), "not"),
    "a notebook": Case(content(dumped({"cells": [], "nbformat": 4})), "traceEvents"),
    "a newer schema of ours": Case(
        made(lambda: text().replace(b'"schema":1', b'"schema":99', 1)), "newer profiler-ext"
    ),
    "a session of many ranks merged": Case(
        made(lambda: dumped(session() | {"distributedInfo": {"rank": 0, "world_size": 10**30}}))
    ),
}
CASES = DAMAGED | PLACES | WRITERS
