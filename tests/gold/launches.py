"""The text of launches: each with its rows; what is as before stands once.

A row ends in ``"`` where all from its phase on is as in the row above. ``5-9 = 0-4`` says that
launches 5 to 9 are as 0 to 4 in everything but times, and the percents that come of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.lineage import Frame
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.sessions.session import Session
from tests.gold.cells import ABSENT, TAB, at, cell, cells, rows

LAUNCH = ("name", "kind", "phase", "graph", "call_site", "evidence")
ROW = ("phase", "line", "module", "module_class", "forward_node", "forward_evidence")
MORE_OF_LAUNCH = ("level", "gap", "device", "stream", "process_group")
MORE_OF_ROW = (
    "evidence",
    "mechanism",
    "level",
    "gap",
    "is_phase_corrected",
    "autograd_backward",
    "annotation",
)
# What is written only where it is something else.
USUAL = {
    "device": 0,
    "stream": 7,
    "level": "line",
    "evidence": "compiled_here",
    "is_phase_corrected": False,
}
LEGEND = (
    f"[launch] {' '.join(LAUNCH)}, what is unusual",
    f"  percent node aten_op seq_nr {' '.join(ROW)} stack, what is unusual",
)
Body = tuple[str, ...]
_DITTO = '"'
_NAME = 100


class Apart:
    """Keeps texts that are too long for each place that names them, by a digest of each."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def of(self, text: str) -> str:
        """Return the digest of a text; what it is does not hang on what else there is."""
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        self._texts[digest] = text
        return digest

    def lines(self) -> list[str]:
        """Return the texts by their digests."""
        return [cells(each) for each in sorted(self._texts.items())]


class Launches:
    """The launches of a session, and what stands beside them since it is long."""

    def __init__(self, session: Session) -> None:
        self.stacks, self.names = Apart(), Apart()
        self._analysis = session.analysis
        heads = [self._head(*each) for each in self._launches(session)]
        self._bodies = [
            tuple(_joined(*each)) for each in zip(heads, self._rows(session), strict=True)
        ]

    def lines(self, *, with_percents: bool = True) -> Iterator[str]:
        """Yield each launch once, and each run of launches that are as earlier ones."""
        yield from LEGEND if with_percents else (line.replace("percent ", "") for line in LEGEND)
        plain = [_without_percents(body) for body in self._bodies]
        yield from _collapsed(self._bodies if with_percents else plain, plain)

    def _launches(self, session: Session) -> Iterator[tuple[dict[str, Any], int | None]]:
        table = session.launches()
        indices = self._analysis.launches.graph.tolist()
        for values, index in zip(rows(table), indices, strict=True):
            yield dict(zip(table.columns, values, strict=True)), index

    def _head(self, row: dict[str, Any], index: int | None) -> str:
        graph = None if index is None else self._analysis.recording.graphs[index]
        shown = {**row, "name": self._name(row["name"]), "graph": index}
        usual = {**USUAL, "kernel": row["name"], **_of_graph(graph)}
        more = ("kernel", "graph", "compile_id", "kernel_source", *MORE_OF_LAUNCH)
        unusual = _unusual({name: row[name] for name in more}, usual)
        return cells((*(shown[name] for name in LAUNCH), *unusual))

    def _name(self, name: str) -> str:
        return name if len(name) <= _NAME else f"{name[: _NAME // 2]}...{self.names.of(name)}"

    def _rows(self, session: Session) -> list[list[tuple[str, str, str]]]:
        shares, table = self._analysis.shares, session.attribution()
        places = self._places(table.assign(place=shares.place).drop_duplicates("place"))
        found: list[list[tuple[str, str, str]]] = [[] for _ in self._analysis.launches.event]
        percents = (table.share.to_numpy(float, na_value=0) * 100).round(1).tolist()
        every = zip(shares.launch.tolist(), shares.place.tolist(), percents, strict=True)
        for launch, place, percent in every:
            found[launch].append((f"  {percent:g}%", *places[place]))
        return found

    def _places(self, table: Any) -> dict[int, tuple[str, str]]:
        found = {}
        for values in rows(table):
            row = dict(zip(table.columns, values, strict=True))
            place = self._analysis.places[row["place"]]
            own = cells(row[name] for name in ("node", "aten_op", "seq_nr"))
            found[row["place"]] = own, self._of_place(row, place)
        return found

    def _of_place(self, row: Mapping[str, Any], place: Place) -> str:
        line, user = at(row["file"], row["line"]), at(row["user_file"], row["user_line"])
        caller = at(row["caller_file"], row["caller_line"])
        own = {"level": place.level, "is_phase_corrected": place.is_phase_corrected}
        known = {**row, **own, "line": line}
        more = {name: known[name] for name in MORE_OF_ROW}
        way = row["mechanism"] if row["mechanism"] is None else "own_stack"  # older ones tell none
        usual = {**USUAL, "mechanism": way, "user_line": line, "caller_line": ABSENT}
        unusual = _unusual({"user_line": user, "caller_line": caller, **more}, usual)
        stack = self.stacks.of(_stack(place.stack))
        return cells((*(known[name] for name in ROW), stack, *unusual))


def times(session: Session) -> Iterator[str]:
    """Yield of each launch its step, its times and estimates, and the time of each row."""
    columns = ["launch", "step", "duration_ns", "est_bytes", "est_flops"]
    parts = _parts(session.analysis)
    for values, of_rows in zip(rows(session.launches()[columns]), parts, strict=True):
        yield cells((*values, " ".join(of_rows)))


def _parts(analysis: Analysis) -> list[list[str]]:
    found: list[list[str]] = [[] for _ in analysis.launches.event]
    shares = analysis.shares
    for launch, duration in zip(shares.launch.tolist(), shares.duration_ns.tolist(), strict=True):
        found[launch].append(str(duration))
    return found


def _of_graph(graph: GraphInstance | None) -> dict[str, str | None]:
    """Return what a launch's columns say where it is of this graph."""
    if graph is None:
        return {"graph": None, "compile_id": None, "kernel_source": None}
    return {
        "graph": graph.key,
        "compile_id": graph.compile_id,
        "kernel_source": graph.output_module,
    }


def _unusual(values: Mapping[str, object], usual: Mapping[str, object]) -> list[str]:
    return [f"{name}={cell(value)}" for name, value in values.items() if value != usual.get(name)]


def _joined(head: str, found: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    yield head
    before = None
    for percent, own, shared in found:
        yield TAB.join((percent, own, _DITTO if shared == before else shared))
        before = shared


def _stack(frames: Sequence[Frame]) -> str:
    return " > ".join(f"{at(frame.file, frame.line)} {frame.function}" for frame in frames)


def _collapsed(bodies: Sequence[Body], plain: Sequence[Body]) -> Iterator[str]:
    first: dict[Body, int] = {}
    same = [first.setdefault(body, number) for number, body in enumerate(plain)]
    start = 0
    while start < len(bodies):
        end = start + 1
        if same[start] == start:
            yield from (f"[{start}] {bodies[start][0]}", *bodies[start][1:])
        else:
            while end < len(bodies) and same[end] == same[end - 1] + 1 != end + 1:
                end += 1
            yield f"[{start}-{end - 1}] = {same[start]}-{same[end - 1]}"
        start = end


def _without_percents(body: Body) -> Body:
    return (body[0], *(f"  {line.partition(TAB)[2]}" for line in body[1:]))
