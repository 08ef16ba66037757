"""Kineto's categories, argument keys, and the event names that have a meaning.

Only this module compares profiler names with literals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

COMPILED_FORWARD = "CompiledFunction"
COMPILED_BACKWARD = "CompiledFunctionBackward"
# Dynamo's guards choose the code of a call. Source: ``torch/csrc/dynamo/eval_frame_cpp.cpp``
CACHE_LOOKUP = "TorchDynamo Cache Lookup"
# The node of a checkpoint with ``use_reentrant=True``: ``torch/utils/checkpoint.py``
CHECKPOINT_FUNCTION = "CheckpointFunctionBackward"
ACCUMULATE_GRAD = "torch::autograd::AccumulateGrad"
_SUMS_OF_GRADIENTS = frozenset({"aten::add", "aten::add_"})
_GRAPH_MARKER = re.compile(r"## Call (?:CompiledFxGraph|AOTInductor) (\S+) ##")
_COMPILED_FRAME = re.compile(r"Torch-Compiled Region: (\S+)")
_EVALUATED = re.compile(r"autograd::engine::evaluate_function: (.+)")
_STEP = re.compile(r"ProfilerStep#(\d{1,18})", re.ASCII)
_OPTIMIZER_STEP = re.compile(r"Optimizer\.step#(.+)\.step")
_ZERO_GRAD = re.compile(r"Optimizer\.zero_grad#(.+)\.zero_grad")
_LAUNCH_CALL = re.compile(
    r"_*(cu|cuda|hip|mt|ur|xpu)\w*(Launch|Memcpy|Memset)\w*"
    r"|zeCommandListAppend(Launch|Memory)\w*"
)
_GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch\w*")
_GRAPH_RECORDING = re.compile(r"CUDAGraphNode\.record\b.*")
_GRAPH_PREFIX = re.compile(r"graph_\d+_(?=.)")
_SHARDING = re.compile(
    r"FSDP::(?:root_)?(?:(?P<forward>\w*forward\w*)|(?P<backward>\w*backward\w*)|\w+)"
    r"(?: \((?P<module>.*)\)| for (?P<prefetched>.*))?"
)
_PART = "(?:_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)"
_WRAPPER = re.compile(rf"\b{_PART}\.|\.?\b{_PART}\b")
_CALL_MARK = re.compile(
    r"profiler_ext:(?= )(?: graph (?P<graph>\d{1,18}))?(?: module (?P<module>\d{1,18}))?"
    r"(?: copies (?P<copies>\w+=\d{1,18}(?: \w+=\d{1,18})*))?",
    re.ASCII,
)
_OWNERS_MARK = re.compile(r"profiler_ext: owners (\d{1,9})", re.ASCII)
_CLOCK_MARK = re.compile(r"profiler_ext: clock (\d{1,18})", re.ASCII)
_NODE_MARK = re.compile(r"profiler_ext: last autograd node (\d{1,18})", re.ASCII)
_CUDA_GRAPH_MARK = re.compile(
    r"profiler_ext: cuda graph (?P<number>\d{1,9}) (?P<what>begins|ends|replays)", re.ASCII
)


class Category(StrEnum):
    """Kineto's event categories."""

    CPU_OP = "cpu_op"
    USER_ANNOTATION = "user_annotation"
    GPU_USER_ANNOTATION = "gpu_user_annotation"
    CUDA_RUNTIME = "cuda_runtime"
    CUDA_DRIVER = "cuda_driver"
    XPU_RUNTIME = "xpu_runtime"
    XPU_DRIVER = "xpu_driver"
    MTIA_RUNTIME = "mtia_runtime"
    PRIVATE_RUNTIME = "privateuse1_runtime"
    PRIVATE_DRIVER = "privateuse1_driver"
    KERNEL = "kernel"
    GPU_MEMCPY = "gpu_memcpy"
    GPU_MEMSET = "gpu_memset"
    PYTHON_FUNCTION = "python_function"
    OVERHEAD = "overhead"
    CUDA_SYNC = "cuda_sync"
    FORWARD_BACKWARD = "fwdbwd"


# What runs on a device. GPU user annotations only span such events.
DEVICE_CATEGORIES = (Category.KERNEL, Category.GPU_MEMCPY, Category.GPU_MEMSET)

WORK_CATEGORIES = (*DEVICE_CATEGORIES, Category.CPU_OP)  # what runs on a device, and the ops

# Calls of the CPU into a device's runtime or driver; ROCm's are called ``cuda_*`` too
CALL_CATEGORIES = tuple(c for c in Category if c.endswith(("_runtime", "_driver")))


class Arg(StrEnum):
    """Keys of an event's ``args``."""

    CORRELATION = "correlation"
    EXTERNAL_ID = "External id"
    GRID = "grid"
    BLOCK = "block"
    REGISTERS = "registers per thread"
    SHARED_MEMORY = "shared memory"
    OCCUPANCY = "est. achieved occupancy %"
    INPUT_DIMS = "Input Dims"
    INPUT_TYPES = "Input type"
    INPUT_STRIDES = "Input Strides"
    CONCRETE_INPUTS = "Concrete Inputs"
    CALL_STACK = "Call stack"
    PYTHON_ID = "Python id"
    PYTHON_PARENT_ID = "Python parent id"
    PYTHON_MODULE_ID = "Python module id"
    PROCESS_GROUP = "Process Group Name"
    COLLECTIVE = "Collective name"
    COLLECTIVE_SEQUENCE = "Seq"
    COLLECTIVE_ELEMENTS = "In msg nelems"
    GROUP_SIZE = "Group size"
    GROUP_RANKS = "Process Group Ranks"


def is_graph_marker(name: str) -> bool:
    """Tell whether the event spans one call of a compiled FX graph, or of a package."""
    return _GRAPH_MARKER.fullmatch(name) is not None


def package_marker(key: str) -> str:
    """Return the name of the event around one call of an AOTInductor package."""
    # torch marks no such call: capture does, and so does ``attach``.
    return f"## Call AOTInductor {key} ##"


def graph_key(name: str) -> str | None:
    """Return the FX graph cache key that a marker carries; ``None`` without one."""
    # Where caches are off or bypassed the trace has "None"; is_graph_marker distinguishes that.
    match = _GRAPH_MARKER.fullmatch(name)
    return None if match is None or match[1] == "None" else match[1]


def compile_id(name: str) -> str | None:
    """Return the id in a compiled frame's event: ``0/0``, or ``!0/1/0`` for compiled autograd's."""
    # Torch calls the event "Torch-Compiled Region: 0/0".
    return _first(_COMPILED_FRAME, name)


def evaluated_function(name: str) -> str | None:
    """Return the autograd node that the engine evaluates in this event."""
    return _first(_EVALUATED, name)


def is_sum_of_gradients(op: str) -> bool:
    """Tell whether the engine sums gradients by this op, where no node runs it."""
    return op in _SUMS_OF_GRADIENTS


def sharding_pass(name: str) -> str | None:
    """Return the pass that such a range belongs to, ``forward`` or ``backward``, if it has one."""
    match = _SHARDING.fullmatch(name)
    if match is None:
        return None
    return "forward" if match["forward"] else "backward" if match["backward"] else None


def sharded_module(name: str) -> str | None:
    """Return the module in ``FSDP::all_gather (layers.0)``, by the user's path from FSDP's root."""
    match = _SHARDING.fullmatch(name)
    module_name = None if match is None else match["module"] or match["prefetched"]
    return _WRAPPER.sub("", module_name) or None if module_name else None


def step_number(name: str) -> int | None:
    """Return N of ``ProfilerStep#N``."""
    number = _first(_STEP, name)
    return None if number is None else int(number)


def optimizer_step(name: str) -> str | None:
    """Return the optimizer's class in ``Optimizer.step#AdamW.step``."""
    return _first(_OPTIMIZER_STEP, name)


def optimizer_zero_grad(name: str) -> str | None:
    """Return the optimizer's class in ``Optimizer.zero_grad#AdamW.zero_grad``."""
    return _first(_ZERO_GRAD, name)


def is_launch_call(name: str) -> bool:
    """Tell whether a runtime or driver call may start work on a device."""
    return _LAUNCH_CALL.fullmatch(name) is not None


def is_graph_launch(name: str) -> bool:
    """Tell whether a runtime call replays a CUDA graph, so that it starts many kernels."""
    return _GRAPH_LAUNCH.fullmatch(name) is not None


def is_graph_recording(name: str) -> bool:
    """Tell whether torch records a CUDA graph in this range, without running its kernels."""
    return _GRAPH_RECORDING.fullmatch(name) is not None


def is_around_ops(name: str) -> bool:
    """Tell whether it is a range around a CUDA graph's recording or replay, and no operator."""
    return is_graph_recording(name) or _CUDA_GRAPH_MARK.fullmatch(name) is not None


def is_sharding(name: str) -> bool:
    """Tell whether it is a range of FSDP's, which gathers parameters or reduces gradients in it."""
    return _SHARDING.fullmatch(name) is not None


def kernel_name(name: str) -> str:
    """Return a kernel's name without the ``graph_0_`` that unique names put before it."""
    return _GRAPH_PREFIX.sub("", name, count=1) if name.startswith("graph_") else name


def _first(pattern: re.Pattern[str], name: str) -> str | None:
    match = pattern.fullmatch(name)
    return None if match is None else match[1]


def call_mark(
    graph: int | None = None, module: int | None = None, copies: Iterable[tuple[str, int]] = ()
) -> str | None:
    """Return the name of the range that marks a call of a compiled graph."""
    # copies: for a graph of compiled autograd the calls of backward graphs that it copies, each
    # with the sequence number of its forward
    fields = (
        "" if graph is None else f" graph {graph}",
        "" if module is None else f" module {module}",
        "".join(f" {call}={number}" for call, number in copies),
    )
    known = fields[0] + fields[1] + (f" copies{fields[2]}" if fields[2] else "")
    return f"profiler_ext:{known}" if known else None


def is_call_mark(name: str) -> bool:
    """Tell whether a range marks a call of a compiled graph."""
    return _CALL_MARK.fullmatch(name) is not None


def clock_mark(number: int) -> str:
    """Return the name of a clock mark: an event that ties the recorder's clock to the trace's."""
    return f"profiler_ext: clock {number}"


def is_clock_mark(name: str) -> bool:
    """Tell whether an event is a clock mark, or another one of this package's."""
    marks = (_CLOCK_MARK, _OWNERS_MARK, _CUDA_GRAPH_MARK, _NODE_MARK)
    return any(mark.fullmatch(name) is not None for mark in marks)


class CudaGraphMark(StrEnum):
    """What a mark of a CUDA graph that the program captured says."""

    BEGINS = "begins"  # its capture begins
    ENDS = "ends"  # its capture ends
    REPLAYS = "replays"  # it is replayed in this range


def cuda_graph_mark(number: int, what: CudaGraphMark) -> str:
    """Return the name of a mark of a CUDA graph that the program captured."""
    return f"profiler_ext: cuda graph {number} {what}"


def marked_cuda_graph(name: str, what: CudaGraphMark) -> int | None:
    """Return the number of the CUDA graph in such a mark, ``None`` for any other event."""
    match = _CUDA_GRAPH_MARK.fullmatch(name)
    return int(match["number"]) if match is not None and match["what"] == what else None


def node_mark(number: int) -> str:
    """Return the name of a mark of the autograd node that a thread made last."""
    return f"profiler_ext: last autograd node {number}"


def marked_node(name: str) -> int | None:
    """Return the number of the node in such a mark, ``None`` for any other event."""
    number = _first(_NODE_MARK, name)
    return None if number is None else int(number)


def owners_mark(number: int) -> str:
    """Return the name of the mark of a reading of who holds which memory."""
    return f"profiler_ext: owners {number}"


def owners_reading(name: str) -> int | None:
    """Return the number of the reading that an event marks, ``None`` for any other event."""
    number = _first(_OWNERS_MARK, name)
    return None if number is None else int(number)


def marked_moment(name: str) -> int | None:
    """Return the number of a clock mark, ``None`` for any other event."""
    number = _first(_CLOCK_MARK, name)
    return None if number is None else int(number)


def marked_graph(name: str) -> int | None:
    """Return the index of the graph in such a mark, ``None`` where there is none."""
    return _marked_number(name, "graph")


def marked_module(name: str) -> int | None:
    """Return the number of the module in such a mark, ``None`` where there is none."""
    return _marked_number(name, "module")


def moved_mark(name: str, offset: int) -> str:
    """Return the name of an event whose module, if it marks one, has another number."""
    module, copies = marked_module(name), marked_copies(name)
    if module is None:
        return name
    return call_mark(marked_graph(name), module + offset, copies) or name


def marked_copies(name: str) -> tuple[tuple[str, int], ...]:
    """Return the calls and numbers in such a mark; empty where there are none."""
    match = _CALL_MARK.fullmatch(name)
    pairs = (pair.split("=") for pair in (match["copies"] or "").split()) if match else ()
    return tuple((call, int(number)) for call, number in pairs)


def _marked_number(name: str, part: str) -> int | None:
    match = _CALL_MARK.fullmatch(name)
    return None if match is None or match[part] is None else int(match[part])


def copied_compile(call: str) -> str:
    """Return the compile of a call in such a mark: ``aot0`` of ``aot0_1``."""
    return call.partition("_")[0]
