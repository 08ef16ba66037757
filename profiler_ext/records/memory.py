"""The records of device memory: what was allocated and freed in the recorded steps, and who holds it.

A device is its index, ``CPU`` for the CPU. Times are nanoseconds on the trace's clock. Columns of
one record have one entry a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from profiler_ext.records.vocabulary import Term

CPU = -1
NO_STACK = -1
Column = tuple[int, ...]


class OwnerKind(
    Term, page="words.md", title="owner of memory", columns=()
):
    """What holds a storage, as it was read in the process."""

    PARAMETER = ("parameter", "parameter", "is a parameter of a module or an optimizer")
    GRADIENT = ("gradient", "gradient", "is the gradient of a parameter")
    OPTIMIZER_STATE = ("optimizer_state", "optimizer state", "is in an optimizer's state")
    BUFFER = ("buffer", "buffer", "is a buffer of a module")
    TENSOR = ("tensor", "tensor", "is another tensor that Python held when the recording began")


@dataclass(frozen=True, slots=True)
class MemoryEvents:
    """What the profiler saw allocated and freed, in order of time."""

    time_ns: Column = ()
    thread: Column = ()  # the system's id
    device: Column = ()
    address: Column = ()
    size_bytes: Column = ()  # of the block; negative where it is freed
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
