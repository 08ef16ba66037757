"""The map of what is stored: the formats with their numbers, and the fields of each record."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator

from profiler_ext.exporters.tensorboard_plugin import document
from profiler_ext.kineto import recording
from profiler_ext.records.analysis import SCHEMA_VERSION
from profiler_ext.records.compiles import (
    CacheLookup,
    Compilation,
    CompileFailure,
    CompileSpan,
    CompileTime,
    GraphBreak,
    Recompilation,
)
from profiler_ext.records.lineage import Frame, Lineage, ModuleFrame
from profiler_ext.records.provenance import (
    CallSite,
    FxNode,
    Gap,
    GraphInstance,
    NestedIn,
    Provenance,
    TensorSpec,
)
from profiler_ext.records.recording import Cell, GeneratedModule, Settings
from profiler_ext.records.stored import (
    RENAMED_IN_PROVENANCE,
    RENAMED_IN_SESSION,
    RenamedKeys,
)
from profiler_ext.store import encoding
from tests.maps.page import first_sentence, page, plain, table

_RECORDS = """# Stored records

What is written by one process and read by another, with the number of its format. Unknown fields
are ignored and absent ones have their default, so **a new field with a default needs no new
number**. What is stored has the version that wrote it (`written_by`), so that an older one that
meets a word which its vocabulary does not have (a mechanism, a state of the cache) names the newer
version and says to update. Where the meaning of what is there changes, the number is raised, the
module says in its docstring what the older ones were, and a test in `tests/store` or `tests/kineto`
reads an older and a newer one."""
_STORED = (
    Provenance,
    FxNode,
    TensorSpec,
    Lineage,
    Frame,
    ModuleFrame,
    CallSite,
    NestedIn,
    GraphInstance,
    GeneratedModule,
    Cell,
    Gap,
    Settings,
    Compilation,
    CompileTime,
    CompileSpan,
    Recompilation,
    GraphBreak,
    CacheLookup,
    CompileFailure,
)
_KEPT = (
    (
        "provenance of a graph: `PXPR`, the number, compressed JSON",
        "on Inductor's cached artifact, and in the store next to Inductor's cache",
        "profiler_ext/store/encoding.py",
        encoding.FORMAT,
        "a newer one is not read, nor one of format 1, nor of format 2 where code goes on after a "
        "graph break, nor of 2 or 3 where a nested region is called; "
        "`profiler-ext cache list` names them",
    ),
    (
        "kernels of library calls: JSON",
        "in the store",
        "profiler_ext/store/encoding.py",
        encoding.KERNELS_FORMAT,
        "neither a newer nor an older one is read",
    ),
    (
        "session: Kineto's trace with a key `profilerExt`, which has settings, graphs, "
        "generated code and gaps",
        "`session.pt.trace.json.gz`",
        "profiler_ext/kineto/recording.py",
        recording.SCHEMA,
        "an older one is read, a newer one is refused; it is attributed again each time"
        " that it is read",
    ),
    (
        "tables: CSV, Parquet and JSON",
        "a folder of an export, `--format json`",
        "exporters/tables/files.py",
        SCHEMA_VERSION,
        "the number is in the frame's `attrs`, in Parquet's metadata and in the JSON",
    ),
    (
        "view for TensorBoard: compressed JSON",
        "`*.attribution.json.gz` in a log folder",
        "exporters/tensorboard_plugin/document.py",
        document.VERSION,
        "an older one is read, a newer one is refused",
    ),
)
_RENAMED = (
    ("provenance, until 4", RENAMED_IN_PROVENANCE),
    ("session, until 2", RENAMED_IN_SESSION),
    ("view for TensorBoard, until 1", document.RENAMED),
)


def stored() -> str:
    """Return the page."""
    return page(_RECORDS, _formats(), _renamed(), *map(_record, _STORED))


def _formats() -> str:
    rows = (
        (what, where, f"`{file}`", str(number), reading)
        for what, where, file, number, reading in _KEPT
    )
    return table(("what", "where", "module", "number", "another number"), rows)


def _renamed() -> str:
    rows = (
        (what, f"`{'.'.join((*path, name))}`", f"`{'.'.join((*path, now))}`")
        for what, renamed in _RENAMED
        for path, name, now in _renamed_keys(renamed, ())
    )
    listed = table(("in", "key", "its name now"), rows)
    return f"## Renamed keys\n\nA file that has a key under its earlier name is read.\n\n{listed}"


def _renamed_keys(
    renamed: RenamedKeys, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    yield from ((path, name, now) for name, now in renamed.own.items())
    for field, within in renamed.within.items():
        yield from _renamed_keys(within, (*path, field))


def _record(kind: type) -> str:
    text = inspect.getdoc(kind) or ""
    meanings = _comments(kind)
    rows = (
        (f"`{f.name}`", f"`{_escaped(str(f.type))}`", plain(meanings.get(f.name, "")))
        for f in dataclasses.fields(kind)
    )
    listed = table(("field", "type", "what it holds"), rows)
    return f"## {kind.__name__}\n\n{first_sentence(text)}\n\n{listed}"


def _escaped(type_name: str) -> str:
    return type_name.replace("|", "\\|")


def _comments(kind: type) -> dict[str, str]:
    """Return the comment of each field: behind it, or in the lines above it."""
    source = inspect.getsource(kind)
    lines = source.splitlines()
    found = {}
    for node in ast.parse(source).body[0].body:
        if isinstance(node, ast.AnnAssign):
            first = node.lineno - 1
            while lines[first - 1].startswith("    # "):
                first -= 1
            comments = [line.partition("# ")[2] for line in lines[first : node.end_lineno]]
            found[ast.unparse(node.target)] = " ".join(filter(None, comments))
    return found
