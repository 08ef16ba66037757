"""What is recorded: trace, graphs, Python lines, generated code, CUDA graphs, cells, settings.

A position is a line of a frame or the call of a module, within another position; a frame's whole
stack is a chain of them. Times are of the recorder's clock, which clock marks tie to the trace's.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from profiler_ext.records import events, inside, lineage, memory, provenance
from profiler_ext.records.compiles import Compilation
from profiler_ext.records.values import StepValues

# Characters of a line that is kept; what is longer was written by no one
MAX_CELL_LINE_LENGTH = 4096
MAX_CELL_LINES = 20_000  # the text of a cell with more is not kept
_CELL = re.compile(r"In\[\d+\]|cell-[0-9a-f]{12}")
lzma: ModuleType | None
MAX_MODULE_BYTES = 8_000_000  # larger modules are not kept
MAX_CODE_BYTES = 64_000_000  # limit of all modules of a session
MAX_PACKED_BYTES = 4_000_000  # limit of their part of the session's file
_PRESET, _MAX_MEMORY_BYTES = 3, 64 << 20
_PART_BYTES = 32 << 10  # no text in a file of ours may be long
_ON_DISK = np.dtype("<i8")
_NUMBERS_OF_A_PART = 4096  # no text in a file of ours may be long, and a thread has many positions
Packed = tuple[bytes, ...]  # numbers, ``int64``, in parts that a file may hold
# So deep are positions at most; what lies deeper is one whose line is not known
MAX_POSITION_DEPTH = 4_096
MAX_CAPTURE_BYTES = 256_000_000  # limit of what was recorded while CUDA graphs were captured
_ZLIB_LEVEL = 3


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a notebook."""

    name: str  # its name wherever a file is named: ``In[3]``
    lines: tuple[str, ...] = ()  # its text as it ran, if kept


def cell_named(number: int) -> str:
    """Return what a cell is called wherever a file is named: ``In[3]``."""
    return f"In[{number}]"


def is_cell(file: str) -> bool:
    """Tell whether a recorded path is a notebook's cell."""
    # A cell of another process is named cell-DIGEST, by its text.
    return _CELL.fullmatch(file) is not None


try:
    import lzma
except ImportError:  # Python can be built without it
    lzma = None


@dataclass(frozen=True, slots=True)
class GeneratedModule:
    """The text of a module that Inductor generated, once for all its graphs."""

    digest: str  # SHA-256 of the text in UTF-8
    paths: tuple[str, ...]  # its paths, as in the graphs' ``output_module``
    size_bytes: int  # of the text in UTF-8
    packed: tuple[bytes, ...]  # the text, compressed by xz, in parts that fit a file

    @property
    def packed_bytes(self) -> int:
        """How many bytes it takes."""
        return sum(map(len, self.packed))

    @property
    def text(self) -> str:
        """The text; raises ValueError or ImportError."""
        if lzma is None:
            raise ImportError("this Python was built without lzma")
        unpacking = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MAX_MEMORY_BYTES)
        try:
            text: bytes = unpacking.decompress(b"".join(self.packed), self.size_bytes + 1)
        except (lzma.LZMAError, EOFError) as error:
            raise ValueError(f"it cannot be unpacked ({error})") from error
        if len(text) != self.size_bytes or hashlib.sha256(text).hexdigest() != self.digest:
            raise ValueError("it is not what its digest names")
        return text.decode()


def generated_module(text: str, paths: Iterable[str]) -> GeneratedModule:
    """Compress the text of a generated module; raises ImportError."""
    if lzma is None:
        raise ImportError("this Python was built without lzma")
    plain = text.encode("utf-8", "backslashreplace")
    packed = lzma.compress(plain, preset=_PRESET)
    parts = (packed[at : at + _PART_BYTES] for at in range(0, len(packed), _PART_BYTES))
    return GeneratedModule(
        hashlib.sha256(plain).hexdigest(), tuple(paths), len(plain), tuple(parts)
    )


def inconsistency_of_code(modules: Iterable[GeneratedModule]) -> str | None:
    """Return what is wrong with modules that were read from a file, ``None`` if nothing is."""
    return next(_of_modules(modules), None)


def _of_modules(modules: Iterable[GeneratedModule]) -> Iterator[str]:
    total_bytes = 0
    for at, module in enumerate(modules):
        total_bytes += max(module.size_bytes, 0)
        if not 0 <= module.size_bytes <= MAX_MODULE_BYTES or total_bytes > MAX_CODE_BYTES:
            yield f"generated module {at}: {module.size_bytes} bytes, expected fewer"
            return
        try:
            _ = module.text
        except ImportError:
            return
        except ValueError as error:
            yield f"generated module {at}: {error}"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a thread is: at a line of a frame of the program, or in the call of a module."""

    parent: int | None  # index of the enclosing position, ``None`` at the bottom of a thread
    function: int | None = None  # index of the frame's function, ``None`` for the call of a module
    line: int = 0  # line of the frame; 0 where it is not known
    module: int | None = None  # index of the module, ``None`` for a frame
    code: str | None = None  # text of the line, stripped; ``None`` where it is unknown or very long


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the program, or of torch's that runs a forward again."""

    file: str
    name: str
    is_recompute: bool = False  # a function of torch's that runs a checkpoint's forward again
    # Dynamo's code calls compiled code at this line: the line is the last one known, or one of
    # several
    is_compiled: bool = False
    # Dynamo's code that resumes after a graph break, for the frame that called it
    is_resume: bool = False
    # Of a graph that runs op by op: the frame that its line was traced from, in a module unknown
    is_traced: bool = False


@dataclass(frozen=True, slots=True)
class ThreadPositions:
    """The positions of one thread in order of time; each holds until the next."""

    thread: int  # the system's id of the thread, as the trace has it
    times: Packed  # when each began, ``int64`` nanoseconds, each from the one before it
    positions: Packed  # index of each position, ``int64``; -1 where no code of the program runs

    @property
    def times_ns(self) -> events.Ints:
        """When each position began."""
        return np.cumsum(_unpacked(self.times))

    @property
    def indices(self) -> events.Ints:
        """The positions."""
        return _unpacked(self.positions)


def thread_positions(thread: int, times_ns: list[int], positions: list[int]) -> ThreadPositions:
    """Pack the positions of a thread."""
    return ThreadPositions(thread, _packed(np.diff(times_ns, prepend=0)), _packed(positions))


def _packed(numbers: Sequence[int] | events.Ints) -> Packed:
    starts = range(0, len(numbers), _NUMBERS_OF_A_PART)
    on_disk = np.asarray(numbers, dtype=_ON_DISK)
    return tuple(on_disk[at : at + _NUMBERS_OF_A_PART].tobytes() for at in starts)


def _unpacked(parts: Packed) -> events.Ints:
    return np.frombuffer(b"".join(parts), _ON_DISK).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ClockMark:
    """A moment on both clocks: the recorder's just before and after an event of the trace."""

    number: int  # the number in the event's name
    before_ns: int
    after_ns: int


@dataclass(frozen=True, slots=True)
class PythonLines:
    """The lines of the program that ran while steps were recorded."""

    functions: tuple[Function, ...]
    # The modules that were called, by path from the user's model; ``None`` for one that was gone at
    # the end, or that its caller does not hold
    modules: tuple[lineage.ModuleFrame | None, ...]
    positions: tuple[Position, ...]  # each after the one that encloses it
    threads: tuple[ThreadPositions, ...]  # the positions of each thread over time
    clock: tuple[ClockMark, ...]  # moments on both clocks, in order
    end_ns: int  # end of the recording of lines


@dataclass(frozen=True, slots=True)
class GraphNode:
    """What a node of a CUDA graph runs."""

    name: str  # a kernel's, as Kineto writes it; ``""`` for a copy or a memset
    category: str  # Kineto's
    shape: tuple[int, ...] = ()  # a kernel's grid and block


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """A CUDA graph that the program captured itself."""

    number: int  # in the marks of its capture and of its replays
    capture: int  # index of what was recorded while it was captured
    kinds: tuple[GraphNode, ...]  # what its nodes run, each once
    packed_nodes: Packed  # index of each node's kind, in the order of capture
    packed_edges: Packed  # pairs of nodes: the second waits for the first

    @property
    def nodes(self) -> events.Ints:
        """The index of each node's kind."""
        return _unpacked(self.packed_nodes)

    @property
    def edges(self) -> events.Ints:
        """The edges, one a row."""
        return _unpacked(self.packed_edges).reshape(-1, 2)


def captured_graph(
    number: int, capture: int, nodes: Sequence[GraphNode], edges: Iterable[tuple[int, int]]
) -> CapturedGraph:
    """Pack the nodes of a CUDA graph."""
    kinds = {node: at for at, node in enumerate(dict.fromkeys(nodes))}
    ends = [end for edge in edges for end in edge]
    own = [kinds[node] for node in nodes]
    return CapturedGraph(number, capture, tuple(kinds), _packed(own), _packed(ends))


@dataclass(frozen=True, slots=True)
class CaptureRecording:
    """What the program did while it captured CUDA graphs: a recording's file, compressed."""

    size_bytes: int
    packed: Packed

    @property
    def content(self) -> bytes:
        """The file; raises ValueError."""
        unpacking = zlib.decompressobj()
        try:
            content = unpacking.decompress(b"".join(self.packed), self.size_bytes + 1)
        except zlib.error as error:
            raise ValueError(f"it cannot be unpacked ({error})") from error
        if len(content) != self.size_bytes:
            raise ValueError("it has another size than it says")
        return content


def capture_recording(content: bytes) -> CaptureRecording:
    """Compress the file of a recording."""
    packed = zlib.compress(content, _ZLIB_LEVEL)
    parts = (packed[at : at + _PART_BYTES] for at in range(0, len(packed), _PART_BYTES))
    return CaptureRecording(len(content), tuple(parts))


def inconsistency_of_captures(
    graphs: Iterable[CapturedGraph], captures: Sequence[CaptureRecording]
) -> str | None:
    """Return what is wrong with CUDA graphs that were read from a file, ``None`` if nothing is."""
    total_bytes = sum(max(each.size_bytes, 0) for each in captures)
    if total_bytes > MAX_CAPTURE_BYTES or any(each.size_bytes < 0 for each in captures):
        return f"captures of CUDA graphs: {total_bytes} bytes, expected fewer"
    for at, graph in enumerate(graphs):
        if not 0 <= graph.capture < len(captures):
            return f"CUDA graph {at}: capture {graph.capture} is not there"
        try:
            nodes, edges = graph.nodes, graph.edges
        except ValueError as error:
            return f"CUDA graph {at}: {error}"
        if not _is_below(nodes, len(graph.kinds)) or not _is_below(edges, len(nodes)):
            return f"CUDA graph {at}: a node is not there"
    return None


def _is_below(numbers: events.Ints, count: int) -> bool:
    return not len(numbers) or bool(numbers.min() >= 0 and numbers.max() < count)


@dataclass(frozen=True, slots=True)
class StepCall:
    """A call of a model that ended in a step, with the tokens that it was given.

    Tokens are counted by the shapes of the inputs alone: padding is among them, and so are the
    beams of a beam search.
    """

    of: str  # what was called, for a person
    batch: int  # sequences
    length: int  # tokens of each sequence
    # Columns of a mask over tokens so far and new ones, ``None`` without such a mask
    context: int | None = None


@dataclass(frozen=True, slots=True)
class StepCalls:
    """The calls of a step with tokens, in order."""

    step: int | None  # number of a recorded step; ``None`` of a step before the recording
    calls: tuple[StepCall, ...]
    # Time of a step in which no profiler was on, ``None`` where it was not taken
    unprofiled_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What is needed to read a recording anywhere."""

    # Folders of the user's files (the script's, the working folder)
    user_roots: tuple[str, ...] = ()
    # Folders of libraries (site-packages, the standard library)
    library_roots: tuple[str, ...] = ()
    command: tuple[str, ...] = ()  # the profiled command line, or ``()``
    torch_version: str = ""
    rank: int = 0  # rank of the process, 0 without ranks
    world_size: int = 1  # number of ranks, 1 without ranks
    # What ended a step: ``prof.step``, ``Optimizer.step``, ``forward``, ``function`` or ``none``
    step_source: str = "none"
    # Modules that were compiled by themselves, by the number in their mark in the trace: each with
    # its path from the user's model
    called_modules: tuple[tuple[int, lineage.ModuleFrame], ...] = ()
    # The profiler's options that were used: ``run``, ``recompile``, ``shapes``; they are not
    # recommended again
    options: tuple[str, ...] = ()
    # Of equal parts of a graph that a backend compiled by itself, which share an artifact, the
    # modules of each call, by the number in its mark
    called_parts: tuple[tuple[int, lineage.PartModules], ...] = ()
    # The names of the models that begin module paths; none where there is one
    models: tuple[str, ...] = ()
    host: str = ""  # the machine's name, of one rank among several; else ``""``
    # Durations of the last steps before the recording, without a profiler; at most 50
    unprofiled_steps_ns: tuple[int, ...] = ()
    # They are times between events on the device's stream; else the program's own
    unprofiled_steps_on_device: bool = False
    # The usual time, by the program's own clock, of the steps before the recording in which it ran
    # ahead of the device: the CPU's work, if it waits for nothing; ``None`` where there were none
    unprofiled_cpu_ns: int | None = None
    # Begin of the first step on the devices, of a step cut out of a recording: what it waited for
    # is not in the trace
    first_step_ns: int | None = None
    # What is called in each step, where calls end the steps: a compiled function or a module, with
    # its place
    step_call: str = ""
    # What was left on that slows each op: ``anomaly detection``; none in older recordings
    debug_settings: tuple[str, ...] = ()
    # The tokens of each step, where calls with tokens end the steps
    step_calls: tuple[StepCalls, ...] = ()


@dataclass(frozen=True, slots=True)
class Recording:
    """What is recorded."""

    trace: events.Trace
    graphs: tuple[provenance.GraphInstance, ...] = ()
    settings: Settings = Settings()
    gaps: tuple[provenance.Gap, ...] = ()
    # The lines of the program that ran; ``None`` where they were not recorded
    python: PythonLines | None = None
    compiles: tuple[Compilation, ...] = ()  # the process's compiles, before the recording and in it
    # The code that Inductor generated for the graphs, if kept
    generated: tuple[GeneratedModule, ...] = ()
    cells: tuple[Cell, ...] = ()  # the notebook cells of the lines
    # The CUDA graphs that the program captured itself and replayed in the recording, and what was
    # recorded while it captured them
    cuda_graphs: tuple[CapturedGraph, ...] = ()
    captures: tuple[CaptureRecording, ...] = ()
    # What a step before the recording computed for nothing; ``None`` where it was not compared
    values: StepValues | None = None
    # What was allocated and freed, in a file of its own next to the trace; if it was recorded
    memory: memory.MemoryRecord | None = None
    # What was measured inside its kernels afterwards; it has a file of its own
    measured: tuple[inside.MeasuredKernel, ...] = ()
