"""The records of compile times: each compile of torch's, its phases, and recompile reasons.

Times are on the trace's clock; what came before its time zero is negative.
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
        "is of compiled autograd, which traces an entire backward before Dynamo gets it",
    )
    RUN_TIME = (
        "run_time",
        "at first calls",
        "is of calls of what is compiled already: kernels are tuned, CUDA graphs are recorded",
    )
    WORKER = (
        "worker",
        "in other threads during a compile",
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
    """A cache of torch's for compiled graphs."""

    AUTOGRAD = (
        "autograd",
        "AOTAutograd's cache",
        "has forward and backward, so that nothing but Dynamo's trace is made",
    )
    FX_GRAPH = ("fx_graph", "FX graph cache", "has what Inductor makes of a graph")


class CacheAnswer(Term, page="words.md", title="answer of a cache", columns=()):
    """The answer of a cache of torch's."""

    HIT = ("hit", "hit", "is that it has it")
    MISS = ("miss", "miss", "is that it does not have it, or only for other sizes")
    BYPASS = (
        "bypass",
        "bypass",
        "is that it cannot keep such a graph, so that every process compiles it",
        "its reason is given with it; what that names can often be changed",
    )
    DISABLED = ("disabled", "off", "is nothing: it is switched off")


@dataclass(frozen=True, slots=True)
class CacheLookup:
    """A cache's answer for one graph."""

    cache: CompileCache
    answer: CacheAnswer
    # Torch's reason for a bypass, or the only guard of an entry that failed; ``None`` for a miss
    # without an entry of the key
    reason: str | None = None
    saved_ns: int | None = None  # compile time that a hit saved, as torch measured it


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """A place where Dynamo could not go on, so that a function became several graphs or none."""

    reason: str  # torch's whole text: what it met, an explanation, hints
    stack: tuple[Frame, ...] = ()  # the program's frames, outermost first; the last is the place
    kind: str | None = None  # torch's name of the break, if any


@dataclass(frozen=True, slots=True)
class Recompilation:
    """Why compiled code did not serve a call: the guard that failed."""

    compile_id: str  # the compile id of that code, ``0/0``
    guard: str  # the guard as torch writes it, or its expected and actual value
    # Where the program made the guard necessary, outermost first, if torch records it
    stack: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class CompileFailure:
    """The error of a failed compile; the function ran eagerly, or the program had the error."""

    type: str
    reason: str


@dataclass(frozen=True, slots=True)
class CompileTime:
    """Time of a compile in one phase, without nested phases."""

    phase: CompilePhase
    duration_ns: int  # part of the compile's wall time
    graph: int | None = None  # index of the graph instance; ``None`` where it was for all of them


@dataclass(frozen=True, slots=True)
class CompileSpan:
    """A span that torch times in a compile; very short ones are left out."""

    name: str  # torch's name
    phase: CompilePhase
    started_ns: int
    duration_ns: int
    depth: int  # number of enclosing spans


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compile of torch's, or compile work at run time."""

    index: int  # its number in this process, in the order in which they ended
    kind: CompileKind
    compile_id: str | None  # ``0/0``; the forward's for a backward, ``None`` where torch has none
    # Number of the Dynamo graph, as of :class:`GraphInstance`, if one was made
    dynamo_number: int | None
    thread: int  # system's id of the thread
    started_ns: int
    duration_ns: int  # wall time of that thread
    times: tuple[CompileTime, ...]  # the duration by phase and graph; they add up to it
    spans: tuple[CompileSpan, ...] = ()  # torch's timed spans, in order of begin
    function: str | None = None  # name of the function, if known
    file: str | None = None
    line: int | None = None  # its first line; after a graph break, where it resumes
    is_resumed: bool = False  # it resumes after a graph break
    # One entry for each code of it that did not serve, newest first
    recompiles: tuple[Recompilation, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    restarts: tuple[str, ...] = ()  # why Dynamo restarted its trace
    lookups: tuple[CacheLookup, ...] = ()  # the caches' answers, in order
    graphs: tuple[int, ...] = ()  # indices of the graph instances that it completed
    failure: CompileFailure | None = None  # the error, if it failed

    def since(self, base_ns: int) -> Compilation:
        """Return it with its times on a clock that began at another one's ``base_ns``."""
        spans = (replace(each, started_ns=each.started_ns - base_ns) for each in self.spans)
        return replace(self, started_ns=self.started_ns - base_ns, spans=tuple(spans))

    def without_graphs(self) -> Compilation:
        """Return it without its graphs, for a recording without them."""
        times = (replace(each, graph=None) for each in self.times)
        return replace(self, graphs=(), times=tuple(times))

    def phase_ns(self, phase: CompilePhase) -> int:
        """Return how long it was in a phase."""
        return sum(each.duration_ns for each in self.times if each.phase is phase)
