"""The records of device memory: what the recorded steps allocated and freed, and who holds it.

A device is its index, ``CPU`` for the CPU. Times are nanoseconds on the trace's clock. Columns of
one record have one entry a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from profiler_ext.records.vocabulary import Term

CPU = -1
NO_STACK = -1
AT_END = -1
"""The reading of holders after the last event of a recording."""
UNSEEN_HOLDER = "a running function or C++ code"
"""The name of a holder that the collector of Python does not go through."""
Column = tuple[int, ...]


class OwnerKind(Term, page="words.md", title="owner of memory", columns=()):
    """What holds a storage, as it was read in the process."""

    PARAMETER = ("parameter", "parameter", "is a parameter of a module or an optimizer")
    GRADIENT = ("gradient", "gradient", "is the gradient of a parameter")
    OPTIMIZER_STATE = ("optimizer_state", "optimizer state", "is in an optimizer's state")
    BUFFER = ("buffer", "buffer", "is a buffer of a module")
    BUCKET = ("bucket", "bucket", "is a gradient bucket of DistributedDataParallel")
    SAVED = ("saved", "saved by autograd", "is held by a node of autograd for its backward")
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
        "was allocated in the forward and is freed in the backward, which needs it, or was saved "
        "for it",
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
    UNSHARDED = (
        "unsharded_parameters",
        "unsharded parameters",
        "holds parameters, or gradients, that FSDP has gathered or not yet reduced",
    )
    COMMUNICATION = (
        "communication",
        "communication",
        "was allocated for a collective, or is a bucket of DistributedDataParallel",
    )
    GRAPH_POOLS = ("graph_pools", "CUDA graph pools", "is in the memory pool of a CUDA graph")
    BATCH = (
        "batch",
        "batch",
        "was allocated outside of forward, backward and optimizer, for a copy from the host or as "
        "an input that the forward saves for the backward",
    )
    HELD = (
        "held",
        "held by the program",
        "is held by a tensor of the program, outlives what made it, and is none of the above: "
        "results of the step before, losses that are kept",
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
    NO_STACK = (
        "no_stack",
        "no Python stack",
        "were allocated by threads of autograd, or while no stacks were recorded",
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


class UnusedKind(Term, page="words.md", title="unused memory", columns=()):
    """What the allocator has reserved and no block in use has, or what is outside of it."""

    FRAGMENTS = (
        "fragments",
        "fragments",
        "is free in segments that have blocks in use",
    )
    CACHED = (
        "cached",
        "cached segments",
        "is of segments without a block in use: `torch.cuda.empty_cache()` returns them",
    )
    GRAPH_POOLS = (
        "free_in_graph_pools",
        "free in CUDA graph pools",
        "is free in the pools of CUDA graphs, and their replays use it",
    )
    AWAITING = (
        "awaiting_free",
        "freed, in use by a stream",
        "was freed by the program, and waits for a stream that it gave the tensor to",
    )
    OUTSIDE = (
        "outside",
        "outside the allocator",
        "is in use on the device, by the driver's count, and not reserved by the allocator: the "
        "CUDA context, NCCL, libraries, other processes",
    )
    OTHER_PROCESSES = (
        "other_processes",
        "other processes",
        "is in use on the device by other processes, by NVML's count",
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
        "has the size that torch gives to a workspace of cuBLAS, as the allocator rounds it, is "
        "older than the recorded steps, and no tensor of Python holds it",
    )
    OWNER = ("owner", "owner", "is held by a name that was read in the process")
    LIBRARY_FRAME = (
        "library_frame",
        "function of a library",
        "was allocated in a function of torch that allocates nothing else, by its Python stack",
    )


class LifeReason(
    Term, page="words.md", title="why a block lives", columns=("by_memory.life_reason",)
):
    """Why a block is still allocated at the peak of a step."""

    OWNER = (
        "owner",
        "held by its owner",
        "is held by the module, optimizer or parameter that its name says, as long as that lives",
    )
    LIBRARY = ("library", "held by a library", "is kept by a library's handle for its next calls")
    SAVED_TENSOR = (
        "saved_tensor",
        "saved for the backward",
        "was saved by autograd for the nodes of the backward that are to come",
    )
    COMPUTE_INTENSIVE = (
        "compute_intensive",
        "saved: costly to compute",
        "is saved by a compiled forward, as recomputing is banned: its op is compute intensive",
    )
    NOT_RECOMPUTABLE = (
        "not_recomputable",
        "saved: not recomputable",
        "is saved by a compiled forward, as recomputing is banned: its op is none of those that "
        "the partitioner recomputes",
    )
    RANDOM = (
        "random",
        "saved: random",
        "is saved by a compiled forward, as recomputing is banned: its op is random",
    )
    REDUCTION = (
        "reduction",
        "saved: a reduction",
        "is saved by a compiled forward, as recomputing is banned: it is much smaller than what it "
        "is computed from",
    )
    MATERIALIZED = (
        "materialized",
        "saved: the backward needs it in memory",
        "is saved by a compiled forward, as recomputing is banned: the backward would have to "
        "write it to memory",
    )
    MUST_SAVE = (
        "must_save",
        "saved: MUST_SAVE",
        "is saved by a compiled forward, as its checkpoint policy is `MUST_SAVE`",
    )
    BANNED = (
        "recompute_banned",
        "saved: recomputing banned",
        "is saved by a compiled forward, as the partitioner bans recomputing it for another reason",
    )
    MIN_CUT = (
        "min_cut",
        "saved: the cheapest to save",
        "is saved by a compiled forward, as the minimum cut of the joint graph goes through it: it "
        "could be recomputed, and what that needs is larger",
    )
    GRAPH_INPUT = (
        "graph_input",
        "saved: an input",
        "is saved by a compiled forward that took it as an input",
    )
    UNREAD = (
        "unread",
        "saved, and read by no kernel",
        "is saved by a compiled forward as a node of its backward takes it, of which no kernel "
        "reads a value: its shape is enough",
    )
    SAVED_BY_GRAPH = (
        "saved_by_graph",
        "saved by a compiled forward",
        "is saved by a compiled forward; why the partitioner chose it was not recorded",
    )
    TO_BE_READ = (
        "to_be_read",
        "to be read",
        "is freed when those in `needed_by`, in the same phase, have read it",
    )
    OUTPUT = (
        "output",
        "output of a graph",
        "is returned by the call of the compiled graph that runs at the peak",
    )
    SCRATCH = ("scratch", "scratch memory", "is freed when the op that allocated it has returned")
    PYTHON = (
        "python",
        "held by Python",
        "is held by the variable, attribute or container in `held_by`",
    )
    GRAPH_POOL = ("graph_pool", "held by a CUDA graph", "is kept by a CUDA graph for its replays")


class LifeEvidence(Term, page="evidence.md", title="life", columns=("by_memory.life_evidence",)):
    """How it is known why a block lives."""

    SAVED_TENSOR = (
        "saved_tensor",
        "read of autograd",
        "is by what the nodes of autograd held when the backward began",
    )
    BACKWARD_INPUT = (
        "backward_input",
        "input of the backward",
        "is by the name under which a compiled backward takes what its forward saved",
    )
    RELEASED = (
        "released",
        "released by a node",
        "is by the node of autograd that had run when the block was freed",
    )
    WRAPPER = (
        "wrapper",
        "reads of the wrapper",
        "is by the buffers that each call site of a generated wrapper reads",
    )
    FREED_OUTSIDE = (
        "freed_outside_ops",
        "freed outside of ops",
        "was freed outside of any op and of autograd's engine: Python released it",
    )
    FREED_IN_OP = ("freed_in_op", "freed in an op", "is by the op in which the block was freed")
    VARIABLE = (
        "variable",
        "variable that holds it",
        "is by the variables of the program, as the backward began or a step ended",
    )
    REFERRER = (
        "referrer",
        "Python's collector",
        "is by what Python's collector says refers to it, when the recording had ended",
    )
    NAME = ("name", "name", "is by the name or the kind of what holds the block")


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
    # 0 for the allocator's own; above 0 of a CUDA graph; below 0 of the program, or of graphs to
    # which it is given
    pool: Column = ()
    stack: Column = ()  # index into ``MemoryRecord.stacks``, or ``NO_STACK``


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks that were allocated at one moment."""

    device: Column = ()
    address: Column = ()
    size_bytes: Column = ()
    stream: Column = ()
    pool: Column = ()
    # Empty where they were not read
    requested_bytes: Column = ()
    stack: Column = ()  # index into ``MemoryRecord.stacks``, or ``NO_STACK``


@dataclass(frozen=True, slots=True)
class Segments:
    """What the allocator had reserved at one moment."""

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
class SavedTensors:
    """What the nodes of autograd held when a backward began."""

    reading: Column = ()  # its mark in the trace
    node: tuple[str, ...] = ()  # ``MulBackward0``
    number: Column = ()  # autograd's sequence number of the node
    attribute: tuple[str, ...] = ()  # ``self``, ``saved_tensors[2]``, as the node has it
    device: Column = ()
    address: Column = ()  # of the storage


@dataclass(frozen=True, slots=True)
class Holders:
    """What of the program's Python held which storage, that has no owner."""

    reading: Column = ()  # ``AT_END`` when the recording had ended
    name: tuple[str, ...] = ()  # ``losses[3]``
    file: tuple[str, ...] = ()  # of the frame whose variable it is; empty for others
    line: Column = ()  # that ran there; 0 for others
    function: tuple[str, ...] = ()
    device: Column = ()
    address: Column = ()


@dataclass(frozen=True, slots=True)
class AllocatorState:
    """The counts that a device's allocator keeps."""

    device: int
    allocated_bytes: int
    peak_allocated_bytes: int  # since the program last reset it
    reserved_bytes: int
    # By the driver, of all processes; 0 where it was not read
    device_used_bytes: int = 0
    device_bytes: int = 0


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
    base_segments: Segments = Segments()
    end_segments: Segments = Segments()
    graph_pools: Column = ()  # those that are known to be of torch.compile's CUDA graphs
    awaiting: Blocks = Blocks()  # freed when it began, and a stream may still have used them
    owners: Owners = Owners()
    saved: SavedTensors = SavedTensors()
    holders: Holders = Holders()
    before: tuple[AllocatorState, ...] = ()
    after: tuple[AllocatorState, ...] = ()
    missing: tuple[str, ...] = ()  # what could not be recorded, in words


@dataclass(frozen=True, slots=True)
class AliveRow:
    """What was alive when memory ran out, of one kind, line and owner."""

    kind: MemoryKind
    size_bytes: int
    requested_bytes: int  # of it, before the allocator rounded up
    blocks: int
    file: str | None = None
    line: int | None = None
    function: str | None = None
    code: str | None = None
    module: str | None = None
    kernel: str | None = None
    owner: str | None = None
    evidence: BirthEvidence | None = None
    gap: str | None = None


@dataclass(frozen=True, slots=True)
class UnusedRow:
    """Memory of a device that no block in use has."""

    kind: UnusedKind
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FailedAllocation:
    """The allocation that failed, and where."""

    device: int
    requested_bytes: int
    largest_free_bytes: int  # the largest block that the allocator had free for it
    stack: tuple[StackFrame, ...]  # of its thread, innermost first
    purpose: str = ""  # what torch asks it for, where it is not the program's own
    caller: tuple[StackFrame, ...] = ()  # of the main thread, if it is another
    autograd_node: str = ""  # the node whose backward it is in
    file: str | None = None
    line: int | None = None
    function: str | None = None
    code: str | None = None
    module: str | None = None
    kernel: str | None = None


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """What was alive on a device when an allocation failed.

    The rows add up to what the allocator had allocated, those and the unused ones to what it had
    reserved; without those outside of it.
    """

    time_ns: int  # wall clock
    process: int
    rank: int
    number: int  # of this process, from 1
    failed: FailedAllocation
    state: AllocatorState
    alive: tuple[AliveRow, ...]  # the largest first
    unused: tuple[UnusedRow, ...]
    command: tuple[str, ...] = ()
    user_roots: tuple[str, ...] = ()
    library_roots: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # what could not be told, in words
