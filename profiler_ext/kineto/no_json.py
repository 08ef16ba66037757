"""Owns telling what a file without JSON is, by its first bytes or its name, and the remedy."""

from __future__ import annotations

import re
from pathlib import Path

_INSTEAD = "record with torch.profiler"
_OF_A_SESSION = "of a session give its folder or the session.pt.trace.json.gz beside it"
_PFTRACE = (
    f"a Perfetto protobuf trace, which is for the Perfetto UI; {_OF_A_SESSION}, and torch's Cuspy "
    "writes JSON when the path that is exported to ends with .json"
)
_XPLANE = re.compile(rb"\n.{1,5}(?:\x08.{1,10})?\x12./(?:host|device):", re.DOTALL)
"""XSpace of XProf: its planes stand where Perfetto has its packets, and begin with their names."""
_UNPACK = "{} data; unpack it, and give what is inside"
_WIDE = re.compile(rb'\xff\xfe|\xfe\xff|\0\0\xfe\xff|[{\[\s]\0{1,3}["{\[\s]|\0{1,3}[{\[\s]\0')
"""With a byte order mark or without; in UTF-8 no value begins with a NUL or has one next."""
_TABLE = re.compile(rb'[\w"-]+(?:,[\w"-]+)+\r?\n')
_LOG = re.compile(rb"[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+:\d+\] ")
"""How each line of torch's own logs begins. Source: ``torch/_logging/_internal.py``."""
_TAR_MAGIC = slice(257, 262)
_NAMED = (
    ((".nsys-rep", ".qdrep"), f"a report of Nsight Systems and not JSON; {_INSTEAD}"),
    ((".ncu-rep",), f"a report of Nsight Compute and not JSON; {_INSTEAD}"),
)
_KINDS = (
    (b"\n", _PFTRACE),
    (b"BZh", _UNPACK.format("bzip2")),
    (b"\xfd7zXZ", _UNPACK.format("xz")),
    (b"\x28\xb5\x2f\xfd", _UNPACK.format("Zstandard")),
    (b"\x1f\x8b", _UNPACK.format("gzip within gzip")),
    (b"PK\x03\x04", "a zip archive, as torch.save writes; unpack it, and give the trace in it"),
    (b"SQLite format 3", f"a SQLite database, as Nsight Systems exports; {_INSTEAD}"),
    (b"NSYS", _NAMED[0][1]),
    (b"\x80", f"a pickle, as torch's memory snapshots are, and not read; {_INSTEAD}"),
    (b"PAR1", f"a table in Parquet; {_OF_A_SESSION}"),
    (b"PERFILE", f"a recording of Linux's perf and not JSON; {_INSTEAD}"),
    (b"memray", f"a recording of memray and not JSON; {_INSTEAD}"),
    (b"<", f"a page or a picture, as report.html is; {_OF_A_SESSION}"),
)


def is_utf16_or_utf32(text: bytes) -> bool:
    """Tell whether the first bytes of a file are UTF-16 or UTF-32.

    Args:
        text: the first bytes.
    """
    return _WIDE.match(text) is not None


def describe_file(path: Path, text: bytes) -> str:
    """Return what a file is, and what to do about it, as far as it tells.

    Args:
        path: its name may tell.
        text: its first bytes.
    """
    if is_utf16_or_utf32(text):
        return "UTF-16 or UTF-32 text; save it as UTF-8"
    if _XPLANE.match(text):
        return f"a profile of JAX or XProf and not JSON; {_INSTEAD}"
    if text[_TAR_MAGIC] == b"ustar":
        return _UNPACK.format("tar")
    if _LOG.match(text):
        return (
            "a log of TORCH_TRACE or TORCH_LOGS, which says what torch compiled and has no times "
            "of a device (tlparse shows it)"
        )
    named = (description for suffixes, description in _NAMED if path.suffix in suffixes)
    begun = (description for magic, description in _KINDS if text.startswith(magic))
    tables = (f"a table in CSV; {_OF_A_SESSION}" for _ in [0] if _TABLE.match(text))
    return next((description for each in (named, begun, tables) for description in each), "not JSON")
