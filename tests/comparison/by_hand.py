"""Owns how a test of a comparison writes a run by hand: the launches of each step, line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profiler_ext.attribution.ledger import busy_spans, keep_ledger
from profiler_ext.comparison.comparison import Comparison, compare
from profiler_ext.comparison.sides import RunOfRanks
from profiler_ext.records import (
    Analysis,
    Compilation,
    Device,
    LaunchKind,
    Level,
    Phase,
    Place,
    Recording,
    Scope,
    Settings,
    Step,
    Thread,
)
from tests.handmade import Mark, Piece, Row, idle, launches, shares, trace

GPU = Thread(0, 7)


@dataclass(frozen=True)
class Part:
    """A part of a launch: its line and text, its module and op, and its time."""

    line: int
    duration_ns: int
    code: str = ""
    module: str | None = None
    op: str | None = None
    phase: Phase = Phase.FORWARD
    file: str = "/src/model.py"
    function: str = "forward"

    @property
    def place(self) -> Place:
        return Place(
            aten_op=self.op,
            phase=self.phase,
            file=self.file,
            line=self.line,
            function=self.function,
            code=self.code or f"y{self.line} = some.call_of_line({self.line})",
            module=self.module,
            level=Level.LINE,
        )


@dataclass(frozen=True)
class Launch:
    """A launch: its kernel, what it computes, and how long the device waits before it."""

    kernel: str
    parts: tuple[Part, ...]
    kind: str = LaunchKind.EAGER
    idle_ns: int = 10

    @property
    def duration_ns(self) -> int:
        return sum(part.duration_ns for part in self.parts)


def run(
    steps: Sequence[Sequence[Launch]],
    name: str = "run",
    *,
    rank: int = 0,
    device: str = "NVIDIA H200",
    roots: tuple[str, ...] = ("/src",),
    compiles: tuple[Compilation, ...] = (),
) -> RunOfRanks:
    """Return a run of one rank in which the device does one thing after the other."""
    return RunOfRanks(name, (analysis(steps, rank, device, roots, compiles),))


def analysis(
    steps: Sequence[Sequence[Launch]],
    rank: int = 0,
    device: str = "NVIDIA H200",
    roots: tuple[str, ...] = ("/src",),
    compiles: tuple[Compilation, ...] = (),
) -> Analysis:
    """Return what attribution would find in such a run."""
    marks: list[Mark] = []
    rows: list[Row] = []
    pieces: list[Piece] = []
    spans: list[Step] = []
    places: dict[Place, int] = {}
    now = 0
    for number, step in enumerate(steps):
        begin = now
        for launch in step:
            if launch.idle_ns:
                pieces.append(Piece(number, len(pieces), now, launch.idle_ns, "launching"))
            now += launch.idle_ns
            marks.append(
                Mark(
                    launch.kernel,
                    "kernel",
                    GPU,
                    now,
                    launch.duration_ns,
                    {"device": 0, "stream": 7},
                )
            )
            now += launch.duration_ns
            own = tuple(
                (places.setdefault(part.place, len(places)), part.duration_ns)
                for part in launch.parts
            )
            rows.append(_row(len(marks) - 1, own, launch, number))
        spans.append(Step(number, begin, now))
    made = launches(marks, rows)
    flags = made.device != made.device
    return Analysis(
        recording=Recording(
            trace=trace(marks, (Device(0, device),)),
            graphs=(),
            settings=Settings(user_roots=roots, torch_version="2.11.0", rank=rank),
            compiles=compiles,
        ),
        steps=tuple(spans),
        launches=made,
        places=tuple(places),
        shares=shares(rows),
        idle=idle(pieces),
        ledger=keep_ledger(made, flags, busy_spans(made), spans),
    )


def _row(event: int, parts: tuple[tuple[int, int], ...], launch: Launch, step: int) -> Row:
    is_eager = launch.kind == LaunchKind.EAGER
    return Row(
        event,
        parts,
        launch.kind,
        launch.parts[0].phase,
        Level.LINE,
        "" if is_eager else launch.kernel,
        step,
        graph=None if is_eager else 0,
    )


def compared(base: Sequence[RunOfRanks], head: Sequence[RunOfRanks]) -> Comparison:
    """Compare two sides."""
    return compare(base, head)


SCOPES = (Scope.EAGER, Scope.COMPILED)
