"""Converts records to plain objects for files and back.

Older files have no record of lineage, the evidence of lines in a list of the graph,
``line_evidence``, and other names of some keys (``RENAMED_IN_PROVENANCE``, ``RENAMED_IN_SESSION``);
all are still read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import msgspec

from profiler_ext.records import compiles, gaps, provenance
from profiler_ext.records.lineage import Lineage
from profiler_ext.records.recording import Cell, PythonLines, Recording
from profiler_ext.version import VERSION, is_newer

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class RenamedKeys:
    """The keys of a stored object that earlier versions wrote under other names."""

    own: Mapping[str, str] = field(default_factory=dict)  # earlier name: name
    # The same of the objects, or lists of objects, in its fields, by the name of the field now
    within: Mapping[str, RenamedKeys] = field(default_factory=dict)


# Until format 4 of the store, and schema 2 of the session
RENAMED_IN_PROVENANCE = RenamedKeys(
    {
        "entered": "entry_calls",
        "is_told": "is_inferred",
        "held_inputs": "parameter_inputs",
    }
)
# Until schema 2 of the session
RENAMED_IN_SESSION = RenamedKeys(
    within={
        "graphs": RenamedKeys(
            {"copied_otherwise": "other_copied_inputs", "cut_from": "parent_graph"},
            {"provenance": RENAMED_IN_PROVENANCE},
        ),
        "settings": RenamedKeys(
            {
                "asked": "options",
                "steps_before_ns": "unprofiled_steps_ns",
                "steps_before_on_device": "unprofiled_steps_on_device",
            }
        ),
        "python": RenamedKeys(
            {"until_ns": "end_ns"},
            {"functions": RenamedKeys({"recomputes": "is_recompute", "resumes": "is_resume"})},
        ),
        "compiles": RenamedKeys(within={"recompiles": RenamedKeys({"of": "compile_id"})}),
    }
)
_LOCK = threading.RLock()
_KNOWN: set[object] = set()
# Where a stored record has the version that wrote it; those of before have no such key
WRITER_KEY = "written_by"
# The begin of msgspec's error for an unknown word of a vocabulary
_UNKNOWN_WORD = "Invalid enum value"
_LINEAGE = frozenset(each.name for each in fields(Lineage))
_TEXT_OF_A_LINE = "code"
_OFF = provenance.Gap(gaps.GapReason.SOURCE_OFF, "source=False")


def known(kind: Kind) -> Kind:
    """Return a type that is safe to decode in any thread."""
    # msgspec inspects a type on first use, and stores an unfinished result on it: a second thread
    # that decodes it then ends the process.
    if kind not in _KNOWN:
        with _LOCK:
            msgspec.json.Decoder(kind)
            _KNOWN.add(kind)
    return kind


# A forked child has a copy of an unlocked lock, and of completed types.
os.register_at_fork(
    before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
)


def version_mismatch(problem: str, content: object) -> str | None:
    """Return why a whole record cannot be read, ``None`` unless another version wrote it."""
    writer = content.get(WRITER_KEY) if isinstance(content, dict) else None
    if isinstance(writer, str) and is_newer(writer):
        return (
            f"was written by a newer profiler-ext ({writer[:40]}; this one is {VERSION}: {problem})"
            "; update profiler-ext to read it"
        )
    if problem.startswith(_UNKNOWN_WORD):
        return (
            f"has a word that this profiler-ext ({VERSION}) does not know ({problem}), as a newer "
            "one may write; update profiler-ext to read it"
        )
    return None


Record = TypeVar("Record")


def flat(record: object) -> Any:
    """Return a provenance, or what holds graph instances, in plain objects as a file has them."""
    return _with_nodes(msgspec.to_builtins(record), _flat)


def nested(plain: Any, kind: type[Record]) -> Record:
    """Convert plain objects to a record; raises msgspec.ValidationError."""
    renamed = RENAMED_IN_PROVENANCE if kind is provenance.Provenance else RENAMED_IN_SESSION
    current = with_current_keys(plain, renamed)
    return msgspec.convert(_with_nodes(current, _nested), known(kind))


def with_current_keys(plain: Any, renamed: RenamedKeys) -> Any:
    """Return plain objects with the names of today; what is no object is left as it is."""
    if isinstance(plain, list | tuple):
        return [with_current_keys(each, renamed) for each in plain]
    if not isinstance(plain, dict):
        return plain
    current = plain
    if not renamed.own.keys().isdisjoint(plain):
        current = {renamed.own.get(name, name): entry for name, entry in plain.items()}
    changed = {
        name: with_current_keys(current[name], within)
        for name, within in renamed.within.items()
        if name in current
    }
    return current | changed if changed else current


def _with_nodes(plain: Any, change: Callable[[Any], Any]) -> Any:
    """Return the same with each node changed; an unexpected shape is left as it is."""
    if not isinstance(plain, dict):
        return plain
    plain = _with_evidence(plain) if "line_evidence" in plain else plain
    changed = dict(plain)
    for name, entry in plain.items():
        if name == "nodes" and isinstance(entry, list | tuple):
            changed[name] = [change(node) for node in entry]
        elif name == "graphs" and isinstance(entry, list | tuple):
            changed[name] = [_with_nodes(graph, change) for graph in entry]
        elif name == "provenance":
            changed[name] = _with_nodes(entry, change)
    return changed


def _with_evidence(graph: dict[str, Any]) -> dict[str, Any]:
    """Return the same with an older file's evidence on its nodes."""
    evidence, nodes = graph["line_evidence"], graph.get("nodes", ())
    if not isinstance(evidence, list | tuple) or not isinstance(nodes, list | tuple):
        raise msgspec.ValidationError("found no list of evidences and nodes, expected one of each")
    if len(evidence) > len(nodes):
        raise msgspec.ValidationError(
            f"{len(evidence)} evidences of {len(nodes)} nodes, expected one each"
        )
    known = [
        (node | {"evidence": each} if isinstance(node, dict) else node)
        for each, node in zip(evidence, nodes, strict=False)
    ]
    own = {name: entry for name, entry in graph.items() if name != "line_evidence"}
    return own | {"nodes": [*known, *nodes[len(known) :]]}


def _flat(node: dict[str, Any]) -> dict[str, Any]:
    lineage: dict[str, Any] = node["lineage"]
    return {name: entry for name, entry in node.items() if name != "lineage"} | lineage


def _nested(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    return node | {"lineage": node}  # what is of the other is passed over


Records = TypeVar("Records")


def without_source(recording: Recording) -> Recording:
    """Return the recording without any source text, cell text or generated code."""
    # Files, line numbers and functions stay, and so do torch's reasons of graph breaks and
    # recompilations, which may quote a line.
    return replace(
        recording,
        graphs=_cleared(recording.graphs, tuple[provenance.GraphInstance, ...]),
        python=_cleared(recording.python, PythonLines | None),
        compiles=_cleared(recording.compiles, tuple[compiles.Compilation, ...]),
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
