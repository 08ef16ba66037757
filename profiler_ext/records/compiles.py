"""The records of what compiling took: each time torch compiled, its phases, and why again.

Times are on the clock of the trace, as those of its events are; what came before its time zero is
below 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from profiler_ext.records.lineage import Frame
from profiler_ext.records.vocabulary import Term


class CompileKind(Term, page="words.md", title="compile", columns=("compiles.compile_kind",)):
    """What torch was at when it compiled."""

    FRAME = (
        "frame",
        "a function",
        "is of a function that Dynamo traced, with its backward where that was not left for later",
    )
    BACKWARD = (
        "backward",
        "a backward, when first run",
        "is of a backward graph, which torch leaves until it first runs",
    )
    COMPILED_AUTOGRAD = (
        "compiled_autograd",
        "compiled autograd's trace",
        "is of compiled autograd, which traces a whole backward before Dynamo has it",
    )
    RUN_TIME = (
        "run_time",
        "at first calls",
        "is of calls of what is compiled already: kernels are tuned, CUDA graphs are recorded",
    )
    WORKER = (
        "worker",
        "in threads beside a compile",
        "is of another thread, while one compiled: it adds nothing to the time that compiles took",
    )


class CompilePhase(Term, page="words.md", title="compile phase", columns=()):
    """Which part of torch took the time of a compile; the phases of one add up to its time."""

    DYNAMO = ("dynamo", "Dynamo", "is that of Dynamo: it traces Python, and builds guards")
    AOT_AUTOGRAD = (
        "aot_autograd",
        "AOTAutograd",
        "is that of AOTAutograd: it traces forward and backward, and parts them",
    )
    INDUCTOR = (
        "inductor",
        "Inductor",
        "is that of Inductor: its passes, lowering, scheduling and code",
    )
    KERNELS = (
        "kernels",
        "Triton, C++",
        "is that of kernels being compiled, by Triton or a C++ compiler, or waited for",
    )
    AUTOTUNING = ("autotuning", "autotuning", "is that of kernels being tried out for the fastest")
    CUDA_GRAPHS = ("cuda_graphs", "CUDA graphs", "is that of CUDA graphs being recorded")
    OTHER = ("other", "other", "is in none of these")


class CompileCache(Term, page="words.md", title="compile cache", columns=()):
    """A cache that torch asks for a graph."""

    AUTOGRAD = (
        "autograd",
        "AOTAutograd's cache",
        "has forward and backward, so that nothing but Dynamo's trace is made",
    )
    FX_GRAPH = ("fx_graph", "FX graph cache", "has what Inductor makes of a graph")


class CacheAnswer(Term, page="words.md", title="answer of a cache", columns=()):
    """What a cache of torch's said."""

    HIT = ("hit", "hit", "is that it has it")
    MISS = ("miss", "miss", "is that it has it not, or only for other sizes")
    BYPASS = (
        "bypass",
        "bypass",
        "is that it cannot keep such a graph, so that every process compiles it",
        "its reason stands beside it; what that names can often be changed",
    )
    DISABLED = ("disabled", "off", "is nothing: it is switched off")


@dataclass(frozen=True, slots=True)
class CacheLookup:
    """What a cache said when it was asked for a graph.

    Attributes:
        cache: which one.
        answer: what it said.
        reason: torch's reason for a bypass, or the guard of an entry that missed by it alone;
            ``None`` of a miss where no entry has the key.
        saved_ns: compile time that a hit spared, as torch measured it when it compiled.
    """

    cache: CompileCache
    answer: CacheAnswer
    reason: str | None = None
    saved_ns: int | None = None


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """A place where Dynamo could not go on, so that a function became several graphs or none.

    Attributes:
        reason: torch's whole text: what it met, an explanation, hints.
        stack: the program's frames, outermost first; the last is the place.
        kind: torch's name for such a break, ``None`` where it has none.
    """

    reason: str
    stack: tuple[Frame, ...] = ()
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Recompilation:
    """Why code that was compiled did not serve a call: the guard of it that failed.

    Attributes:
        of: compile id of that code, ``0/0``.
        guard: the guard, as torch writes it, or what it found and expected.
        stack: where the program made the guard necessary, outermost first; empty where torch
            does not tell.
    """

    of: str
    guard: str
    stack: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class CompileFailure:
    """Why a compile gave nothing, so that its function ran eagerly or the program had an error.

    Attributes:
        type: the error's.
        reason: its text.
    """

    type: str
    reason: str


@dataclass(frozen=True, slots=True)
class CompileTime:
    """Time that a compile was in one phase, and in no phase within that.

    Attributes:
        phase: the phase.
        duration_ns: how long, of the compile's wall time.
        graph: index of the graph instance that it was for; ``None`` where it was for all of them.
    """

    phase: CompilePhase
    duration_ns: int
    graph: int | None = None


@dataclass(frozen=True, slots=True)
class CompileSpan:
    """One of the spans that torch times in a compile; those too short to be seen are left out.

    Attributes:
        name: torch's name for it.
        phase: the phase that it is in.
        started_ns: when it began.
        duration_ns: how long it took, with what lies in it.
        depth: how many spans it lies in.
    """

    name: str
    phase: CompilePhase
    started_ns: int
    duration_ns: int
    depth: int


@dataclass(frozen=True, slots=True)
class Compilation:
    """One time that torch compiled, or did at run time what belongs to compiling.

    Attributes:
        index: its number in this process, in the order in which they ended.
        kind: what torch was at.
        compile_id: ``0/0``; that of the forward for a backward, ``None`` where torch has none.
        dynamo_number: the number of the Dynamo graph, as of :class:`GraphInstance`; ``None``
            where none was made.
        thread: system's id of the thread.
        started_ns: when it began.
        duration_ns: how long it took, of that thread's wall time.
        times: the same by phase and graph; they add up to it.
        spans: what torch timed in it, in the order of their begin.
        function: name of the function, ``None`` where torch does not say.
        file: its file.
        line: its first line; of a function that goes on after a break, where it goes on.
        is_resumed: it goes on after a graph break.
        recompiles: why it was compiled again: one entry for each code of it that did not serve,
            the newest first; empty for a first compile.
        breaks: where Dynamo could not go on.
        restarts: why Dynamo began its trace anew.
        lookups: what the caches said, in order.
        graphs: indices of the graph instances that became ready in it.
        failure: why it gave nothing, if it did not.
    """

    index: int
    kind: CompileKind
    compile_id: str | None
    dynamo_number: int | None
    thread: int
    started_ns: int
    duration_ns: int
    times: tuple[CompileTime, ...]
    spans: tuple[CompileSpan, ...] = ()
    function: str | None = None
    file: str | None = None
    line: int | None = None
    is_resumed: bool = False
    recompiles: tuple[Recompilation, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    restarts: tuple[str, ...] = ()
    lookups: tuple[CacheLookup, ...] = ()
    graphs: tuple[int, ...] = ()
    failure: CompileFailure | None = None

    def since(self, base_ns: int) -> Compilation:
        """Return it with its times on a clock that began at another one's ``base_ns``."""
        spans = (replace(each, started_ns=each.started_ns - base_ns) for each in self.spans)
        return replace(self, started_ns=self.started_ns - base_ns, spans=tuple(spans))

    def without_graphs(self) -> Compilation:
        """Return it where nothing is known of the graphs that it gave."""
        times = (replace(each, graph=None) for each in self.times)
        return replace(self, graphs=(), times=tuple(times))

    def phase_ns(self, phase: CompilePhase) -> int:
        """Return how long it was in a phase."""
        return sum(each.duration_ns for each in self.times if each.phase is phase)
