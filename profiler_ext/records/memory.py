"""The records of device memory: what the recorded steps allocated and freed, and who holds it.

A device is its index, ``CPU`` for the CPU. Times are nanoseconds on the trace's clock. Columns of
one record have one entry a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from profiler_ext.records.vocabulary import Term

CPU = -1
NO_STACK = -1
Column = tuple[int, ...]


class OwnerKind(Term, page="words.md", title="owner of memory", columns=()):
    """What holds a storage, as it was read in the process."""

    PARAMETER = ("parameter", "parameter", "is a parameter of a module or an optimizer")
    GRADIENT = ("gradient", "gradient", "is the gradient of a parameter")
    OPTIMIZER_STATE = ("optimizer_state", "optimizer state", "is in an optimizer's state")
    BUFFER = ("buffer", "buffer", "is a buffer of a module")
    TENSOR = ("tensor", "tensor", "is another tensor that Python held when the recording began")


class MemoryKind(Term, page="words.md", title="memory", columns=("by_memory.kind",)):
    """What a block of memory is, at the peak of a step."""

    PARAMETERS = ("parameters", "parameters", "holds parameters")
    GRADIENTS = ("gradients", "gradients", "holds gradients of parameters")
    OPTIMIZER = ("optimizer_state", "optimizer state", "holds an optimizer's state")
    BUFFERS = ("buffers", "buffers", "holds buffers of modules")
    SAVED = (
        "saved_activations",
        "saved activations",
        "was allocated in the forward and is freed in the backward, which needs it",
    )
    TEMPORARIES = (
        "temporaries",
        "temporaries",
        "is freed in the phase in which it was allocated",
    )
    WORKSPACES = (
        "workspaces",
        "workspaces",
        "is scratch memory of a library or a kernel: it is freed before the op has returned, or "
        "Inductor names it a workspace",
    )
    COMMUNICATION = ("communication", "communication", "was allocated for a collective")
    GRAPH_POOLS = ("graph_pools", "CUDA graph pools", "is in the memory pool of a CUDA graph")
    BATCH = (
        "batch",
        "batch",
        "was allocated for a copy from the host, outside of forward, backward and optimizer",
    )
    OTHER = ("other", "other", "is none of these, as far as the recording shows")


class MemoryGap(Term, page="words.md", title="memory gap", columns=("by_memory.gap",)):
    """Why the line of a block is not known."""

    BEFORE_RECORDING = (
        "before_recording",
        "allocated before the recording",
        "were allocated before the recorded steps, and nothing that has a name holds them",
    )
    HELD_BY_NAME = (
        "held_by_name",
        "held by a name",
        "were allocated before the recorded steps; their name says what they are",
    )
    NO_OP = (
        "no_op",
        "allocated by no op",
        "were allocated outside of any op, at a line that is not known",
    )
    SEVERAL_VALUES = (
        "several_values",
        "one of several values",
        "hold one of several values of equal size that a kernel stores, on different lines",
    )
    NO_CALL_SITE = (
        "no_call_site",
        "no call site allocates it",
        "were allocated in a call of a compiled graph, by none of its known call sites",
    )
    UNSEEN = (
        "unseen",
        "counted by the allocator alone",
        "are in the allocator's count, and no block is known of them: a thread allocated them that "
        "the profiler does not record, or the allocator lists no blocks",
    )


class BirthEvidence(Term, page="evidence.md", title="allocation", columns=("by_memory.evidence",)):
    """How the origin of a block is known."""

    WRAPPER_LINE = (
        "wrapper_line",
        "line of the wrapper",
        "was allocated by a line of the generated wrapper, by its Python stack",
    )
    WRAPPER_ORDER = (
        "wrapper_order",
        "order in the wrapper",
        "was allocated by a line of the generated wrapper, by order, and all sizes agree",
    )
    GRAPH_OP = ("graph_op", "op of a call site", "was allocated by the op of a call site")
    OP = ("op", "op", "was allocated by an op outside of compiled graphs")
    PYTHON_STACK = ("python_stack", "Python stack", "has its line by the allocation's Python stack")
    WORKSPACE_SIZE = (
        "workspace_size",
        "size of a workspace",
        "has the size that torch gives to a workspace of cuBLAS, is older than the recorded steps, "
        "and no tensor of Python holds it",
    )
    OWNER = ("owner", "owner", "is held by a name that was read in the process")


@dataclass(frozen=True, slots=True)
class MemoryEvents:
    """What the profiler saw allocated and freed, in order of time."""

    time_ns: Column = ()
    thread: Column = ()  # the system's id
    device: Column = ()
    address: Column = ()
    # Of the block; negative where it is freed, 0 where the end of an unknown size was seen
    size_bytes: Column = ()
    # The allocator's own count after it; 0 where it keeps none
    allocated_bytes: Column = ()


@dataclass(frozen=True, slots=True)
class AllocatorHistory:
    """The caching allocator's own history, with the Python stack of each allocation."""

    device: Column = ()
    action: tuple[str, ...] = ()  # ``alloc``, ``free_requested``, ``segment_alloc``, ...
    address: Column = ()
    requested_bytes: Column = ()
    stream: Column = ()
    time_us: Column = ()  # wall clock
    pool: Column = ()  # of CUDA graphs or the program; 0 for the allocator's own
    stack: Column = ()  # index into ``MemoryRecord.stacks``, or ``NO_STACK``


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks that were allocated at one moment."""

    device: Column = ()
    address: Column = ()
    size_bytes: Column = ()
    stream: Column = ()
    pool: Column = ()


@dataclass(frozen=True, slots=True)
class Owners:
    """Who held which storage at each reading."""

    reading: Column = ()  # 0 is before the recording began; the others are marks in the trace
    kind: tuple[OwnerKind, ...] = ()
    name: tuple[str, ...] = ()
    device: Column = ()
    address: Column = ()
    size_bytes: Column = ()


@dataclass(frozen=True, slots=True)
class AllocatorState:
    """The counts that a device's allocator keeps."""

    device: int
    allocated_bytes: int
    peak_allocated_bytes: int  # since the program last reset it
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class StackFrame:
    """A Python frame of an allocation."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """The memory of the recorded steps."""

    trace_base_ns: int  # of the trace that it belongs to
    events: MemoryEvents = MemoryEvents()
    history: AllocatorHistory = AllocatorHistory()
    frames: tuple[StackFrame, ...] = ()
    stacks: tuple[Column, ...] = ()  # indices of frames, innermost first
    base: Blocks = Blocks()  # when the recording began
    end: Blocks = Blocks()  # when it ended
    owners: Owners = Owners()
    before: tuple[AllocatorState, ...] = ()
    after: tuple[AllocatorState, ...] = ()
    missing: tuple[str, ...] = ()  # what could not be recorded, in words
