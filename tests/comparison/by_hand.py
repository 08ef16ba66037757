"""How a test of a comparison writes a run by hand: the launches of each step, line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profiler_ext.attribution.step_breakdown import break_down_steps, busy_spans
from profiler_ext.comparison.sides import RunOfRanks
from profiler_ext.records.analysis import Analysis, Place, Step
from profiler_ext.records.compiles import Compilation
from profiler_ext.records.events import Device, Thread
from profiler_ext.records.lineage import Frame
from profiler_ext.records.recording import Recording, Settings
from profiler_ext.records.vocabulary import LaunchKind, Level, Phase
from tests.handmade import Mark, Piece, Row, idle, launches, shares, trace

GPU = Thread(0, 7)
FILE = "/src/model.py"


@dataclass(frozen=True)
class Part:
    """A part of a launch: its line and text, its module and op, and its time."""

    line: int
    duration_ns: int
    code: str | None = None
    module: str | None = None
    op: str | None = None
    phase: Phase = Phase.FORWARD
    file: str = FILE
    function: str = "forward"

    @property
    def place(self) -> Place:
        return Place(
            aten_op=self.op,
            phase=self.phase,
            file=self.file,
            line=self.line,
            function=self.function,
            code=self.code,
            module=self.module,
            level=Level.LINE,
        )


@dataclass(frozen=True)
class Launch:
    """A launch: its kernel, what it computes, and how long the device waits before it."""

    kernel: str
    parts: tuple[Part, ...]
    kind: LaunchKind = LaunchKind.EAGER
    idle_ns: int = 10

    @property
    def duration_ns(self) -> int:
        return sum(part.duration_ns for part in self.parts)


Steps = Sequence[Sequence[Launch]]


def launch(line: int, duration_ns: int, code: str | None = None, **more: str) -> Launch:
    """Return an eager launch of one line."""
    return Launch(f"kernel_{line}", (Part(line, duration_ns, code, **more),))


def run(
    steps: Steps,
    name: str = "run",
    *,
    rank: int = 0,
    device: str | None = "NVIDIA H200",
    compiles: tuple[Compilation, ...] = (),
) -> RunOfRanks:
    """Return a run of one rank in which the device, or the CPU, does one thing after the other."""
    return RunOfRanks(name, (analysis(steps, rank, device, compiles),))


def analysis(
    steps: Steps,
    rank: int = 0,
    device: str | None = "NVIDIA H200",
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
        for each in step:
            if each.idle_ns:
                pieces.append(Piece(number, len(pieces), now, each.idle_ns, "launching"))
            now += each.idle_ns
            on_device = {"device": 0, "stream": 7} if device else {}
            marks.append(Mark(each.kernel, "kernel", GPU, now, each.duration_ns, on_device))
            now += each.duration_ns
            rows.append(_row(len(marks) - 1, each, number, places))
        spans.append(Step.on_cpu(number, begin, now))
    made = launches(marks, rows)
    return Analysis(
        recording=Recording(
            trace=trace(marks, (Device(0, device),) if device else ()),
            graphs=(),
            settings=Settings(user_roots=("/src",), torch_version="2.11.0", rank=rank),
            compiles=compiles,
        ),
        steps=tuple(spans),
        launches=made,
        places=tuple(places),
        shares=shares(rows),
        idle=idle(pieces),
        breakdown=break_down_steps(made, made.device < 0, busy_spans(made), spans),
    )


def _row(event: int, launch: Launch, step: int, places: dict[Place, int]) -> Row:
    is_eager = launch.kind == LaunchKind.EAGER
    return Row(
        event,
        tuple(
            (places.setdefault(part.place, len(places)), part.duration_ns) for part in launch.parts
        ),
        launch.kind,
        launch.parts[0].phase,
        Level.LINE,
        "" if is_eager else launch.kernel,
        step,
        graph=None if is_eager else 0,
    )


def lines(text: str, file: str = "model.py", first: int = 1) -> dict[tuple[str, int], Frame]:
    """Return what is known of a source text: its lines that end with ``#``, by number.

    ``def name`` says the function of those below it.
    """
    known: dict[tuple[str, int], Frame] = {}
    function = "<module>"
    for number, line in enumerate(text.strip("\n").splitlines(), first):
        if line.strip().startswith("def "):
            function = line.strip()[4:].partition("(")[0]
        if line.rstrip().endswith("#"):
            code = line.rstrip()[:-1].strip()
            known[file, number] = Frame(file, number, function, code or None)
    return known
