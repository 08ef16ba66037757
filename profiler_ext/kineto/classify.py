"""Predicates on event names and categories: pure functions of one string."""

from __future__ import annotations

import re
from collections.abc import Sequence

from profiler_ext.kineto import classify, communication, names
from profiler_ext.kineto.names import Category

_GENERATED = re.compile(
    r"triton_(?:[a-z]+_)?fused_|triton_(?:poi|red|per|for|tem|mix|split_scan)_|cpp_fused_"
)
_DISPATCHED_OP = re.compile(r"[A-Za-z_]\w*::[A-Za-z_][\w.]*")
_BENCHMARKING = re.compile(r"^CachingAutotuner\.|benchmark|autotuning|do_bench")
_NOT_DISPATCHED = ("autograd::", "torch::autograd::")
_DEVICE_WAIT = re.compile(r"_*(cu|cuda|hip|ur|xpu|ze)\w*(Synchronize|QueueFinish|EventWait)\w*")
_ALLOCATION = re.compile(
    r"_*(cu|cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|HostFree|HostRegister|HostUnregister"
    r"|Mem(Alloc|Free|Create|Map|Unmap|Release|Address|SetAccess|HostAlloc))\w*"
)
_FREE = re.compile(r"_*(cu|cuda|hip)(Mem)?Free(?!Async)\w*")
_DATA_LOADER = re.compile(r"enumerate\(Data(Loader|Pipe)\)#.+")
_HOST_COLLECTIVE = re.compile(r"(gloo|mpi|ucc):.+")
_OF_SOME_HOST = re.compile(
    r"Memcpy \w+ \((?:(?:Host|Memory) -> \w+|\w+ -> (?:Host|Memory))\)|dma_request"
)
_PAGEABLE = re.compile(r"Memcpy (?P<way>HtoD|DtoH) \((?:Pageable -> \w+|\w+ -> Pageable)\)")
_UNSCALE = "aten::_amp_foreach_non_finite_check_and_unscale_"
_UPDATE = "aten::_amp_update_scale_"
_ITEM = "aten::item"
_LETTERS = {"aten::to": "t", "aten::reciprocal": "r", "aten::full": "f", "aten::add_": "a"}
# ``scale.double().reciprocal().float()``, ``torch.full`` for what is found, copies for devices
_UNSCALES = re.compile(r"trtft*$")
_UPDATES = re.compile(r"(t+)(a*)$")  # what was found on each of several devices, and its sum
# So many ops before a scaler's may be its own: with eight devices there are fewer
MAX_OPS_BEFORE = 24
_CALL_OF_MODULE = "nn.Module: "
_RECOMPUTATION = re.compile(
    r"(?:.*[/\\])?torch[/\\]utils[/\\]checkpoint\.py\(\d+\): (?:recompute_fn|backward)"
)


def is_device_work(category: str) -> bool:
    """Tell whether the category is that of kernels, copies and memsets on a device."""
    return category in names.DEVICE_CATEGORIES


def is_copy_on_device(name: str) -> bool:
    """Tell whether a device event copies or fills memory of one device alone."""
    return name.startswith(("Memcpy DtoD", "Memset"))


def is_op(category: str) -> bool:
    """Tell whether the category is that of operators on the CPU."""
    return category == Category.CPU_OP


def is_annotation(category: str) -> bool:
    """Tell whether the category is that of named ranges on the CPU."""
    return category == Category.USER_ANNOTATION


def is_runtime_call(category: str) -> bool:
    """Tell whether the category is that of calls into a device's runtime or driver."""
    return category.endswith(("_runtime", "_driver"))


def is_on_cpu(category: str) -> bool:
    """Tell whether the category is that of a CPU's ops, named ranges and calls of a runtime."""
    return is_op(category) or is_annotation(category) or is_runtime_call(category)


def is_profiler_range(category: str) -> bool:
    """Tell whether the category is that of ranges in which a device's counters were read."""
    # Kineto spreads them evenly over the recording. Source: CuptiRangeProfiler.cpp.
    return category.endswith("_profiler_range")


def is_driver_call(category: str) -> bool:
    """Tell whether the category is that of calls into a device's driver."""
    return category.endswith("_driver")


def is_compiled_frame(name: str) -> bool:
    """Tell whether the event spans a compiled Dynamo frame."""
    return names.compile_id(name) is not None


def is_engine(name: str) -> bool:
    """Tell whether a backward pass runs in this event: a node's, or compiled autograd's."""
    is_compiled = (names.compile_id(name) or "").startswith("!")
    return is_compiled or names.evaluated_function(name) is not None


def is_gradient_accumulation(name: str) -> bool:
    """Tell whether the engine adds to a parameter's gradient in this event."""
    return names.evaluated_function(name) == names.ACCUMULATE_GRAD


def is_compiled_forward(name: str) -> bool:
    """Tell whether the event is a compiled forward that autograd knows."""
    return name == names.COMPILED_FORWARD


def is_compiled_backward(name: str) -> bool:
    """Tell whether the event is the backward of a compiled forward."""
    return name == names.COMPILED_BACKWARD


def is_optimizer(name: str) -> bool:
    """Tell whether the event is an optimizer's ``step`` or ``zero_grad``."""
    return names.optimizer_step(name) is not None or names.optimizer_zero_grad(name) is not None


def is_optimizer_op(name: str) -> bool:
    """Tell whether only an optimizer calls this operator (``aten::_fused_adamw_``)."""
    return name.startswith(("aten::_fused_ada", "aten::_fused_sgd"))


def is_sharding_pass(name: str) -> bool:
    """Tell whether FSDP2 works for a forward or a backward pass in this range."""
    return names.sharding_pass(name) is not None


def is_sharding_of_module(name: str) -> bool:
    """Tell whether FSDP2 works on the parameters of one module in this range."""
    return names.sharded_module(name) is not None


def is_call_mark(name: str) -> bool:
    """Tell whether a range marks a call of a compiled graph."""
    return names.is_call_mark(name)


def is_module_mark(name: str) -> bool:
    """Tell whether a range names the module on which a graph is called."""
    return names.marked_module(name) is not None


def is_copies_mark(name: str) -> bool:
    """Tell whether a range marks a call of a graph of compiled autograd."""
    return bool(names.marked_copies(name))


def is_step(name: str) -> bool:
    """Tell whether the event spans a profiled step."""
    return names.step_number(name) is not None


def is_compiling(name: str) -> bool:
    """Tell whether the event is compile work, so that launches within it are not the model's."""
    # CUDA graphs are warmed up and recorded inside a timed range too; those run the model.
    timed = name.endswith("(dynamo_timed)") and "cudagraph" not in name.lower()
    return timed or name.startswith("CachingAutotuner.")


def is_benchmarking(name: str) -> bool:
    """Tell whether compile work is a benchmark: Inductor times kernels to choose one."""
    # Source: ``torch/_inductor``: ``CachingAutotuner``, ``benchmark_fused_nodes``,
    # ``benchmark_codegened_module``, ``mm_template_autotuning``, ``collective_compute_do_bench``.
    return is_compiling(name) and _BENCHMARKING.search(name) is not None


def is_dispatched_op(name: str) -> bool:
    """Tell whether the name is that of an operator such as ``aten::mm``."""
    return _DISPATCHED_OP.fullmatch(name) is not None and not name.startswith(_NOT_DISPATCHED)


def is_generated_kernel(name: str) -> bool:
    """Tell whether Inductor generated the kernel of this name."""
    return _GENERATED.match(names.kernel_name(name)) is not None


def is_cpu_kernel(name: str) -> bool:
    """Tell whether the event is one run of an Inductor C++ kernel on the CPU."""
    return names.kernel_name(name).startswith("cpp_fused_")


def is_template_kernel(name: str) -> bool:
    """Tell whether the kernel came from one of Inductor's Triton templates."""
    return names.kernel_name(name).startswith("triton_tem_")


def is_copy(category: str) -> bool:
    """Tell whether the category is that of copies on a device."""
    return category == Category.GPU_MEMCPY


def is_memset(category: str) -> bool:
    """Tell whether the category is that of memsets on a device."""
    return category == Category.GPU_MEMSET


def work_name(name: str, category: str) -> str:
    """Return what a device event ran, the same in every run."""
    # The name of a memset or a copy also has the kind of memory, as far as that run knew it.
    if is_copy(category) or is_memset(category):
        return name.partition(" (")[0]
    return names.kernel_name(name)


def is_memory_work(name: str) -> bool:
    """Tell whether a device event of this name is a memset or a copy."""
    return name.startswith(("Memset", "Memcpy"))


def is_kernel(category: str) -> bool:
    """Tell whether the category is that of kernels on a device."""
    return category == Category.KERNEL


def is_profilers(category: str) -> bool:
    """Tell whether the category is that of the profiler's own work."""
    return category == Category.OVERHEAD


def is_device_wait(name: str) -> bool:
    """Tell whether the CPU waits in a runtime or driver call until a device is done."""
    return _DEVICE_WAIT.fullmatch(name) is not None


def is_free(name: str) -> bool:
    """Tell whether a call frees device memory, for which it waits until the device is done."""
    return _FREE.fullmatch(name) is not None


def is_data_loader(name: str) -> bool:
    """Tell whether a range is the wait for a ``DataLoader``'s next batch."""
    # Source: ``torch/utils/data/dataloader.py``, ``_BaseDataLoaderIter.__next__``.
    return _DATA_LOADER.fullmatch(name) is not None


def pageable_copy(name: str) -> str | None:
    """Return the way of a copy from or to pageable memory, ``HtoD`` or ``DtoH``."""
    match = _PAGEABLE.fullmatch(name)
    return None if match is None else match["way"]


def is_copy_of_unknown_memory(name: str) -> bool:
    """Tell whether it copies from or to host memory that may be pageable or not."""
    # Source: ``libkineto/src/RocprofActivity_inl.h`` (``Host -> Device``).
    return _OF_SOME_HOST.fullmatch(name) is not None


def is_allocation(name: str) -> bool:
    """Tell whether a runtime or driver call allocates memory, or frees it."""
    return _ALLOCATION.fullmatch(name) is not None


def is_host_collective(name: str) -> bool:
    """Tell whether the event is a collective that the CPU does itself."""
    return _HOST_COLLECTIVE.fullmatch(name) is not None


def is_compiling_or_recording(name: str) -> bool:
    """Tell whether torch compiles, times kernels to choose one, or records a CUDA graph."""
    timed = name.endswith("(dynamo_timed)")
    return timed or classify.is_compiling(name) or names.is_graph_recording(name)


def is_calling(name: str) -> bool:
    """Tell whether an annotation is a part of calling a compiled graph, or a collective."""
    is_mark = names.is_call_mark(name) or names.is_clock_mark(name)
    return is_mark or names.is_graph_marker(name) or communication.is_communication(name)


def is_scaling_op(name: str) -> bool:
    """Tell whether only a gradient scaler calls this operator."""
    return name in (_UNSCALE, _UPDATE)


def own_ops_before(name: str, before: Sequence[str]) -> int:
    """Return how many ops before a scaler's belong to it."""
    # Nothing else calls these two ops, and torch runs these right before each. Source:
    # torch/amp/grad_scaler.py.
    letters = "".join(_LETTERS.get(each, ".") for each in before)
    if name == _UNSCALE:
        match = _UNSCALES.search(letters)
        return len(match[0]) if match else 0
    match = _UPDATES.search(letters)
    sums = len(match[2]) if match else 0
    return 2 * sums + 1 if match and len(match[1]) > sums else 0


def is_step_check(name: str, after: Sequence[str]) -> bool:
    """Tell whether the op after a scaler's checks for finite gradients: ``found_inf.item()``."""
    # Where the program runs something in between, an ``item`` can be the program's own.
    is_all = name == _UNSCALE and len(after) > 1 and after[0] == _ITEM
    return is_all and names.optimizer_step(after[1]) is not None


def is_python(category: str) -> bool:
    """Tell whether the category is that of Python's calls."""
    return category == Category.PYTHON_FUNCTION


def is_call_of_module(name: str) -> bool:
    """Tell whether Python calls a module: ``nn.Module: Linear_0``, its forward and its hooks."""
    return name.startswith(_CALL_OF_MODULE)


def is_recomputation(name: str) -> bool:
    """Tell whether a call runs a forward again: ``torch/utils/checkpoint.py(1500): recompute_fn``.

    Source: ``torch/utils/checkpoint.py``, ``recompute_fn`` and ``CheckpointFunction.backward``.
    """
    return _RECOMPUTATION.fullmatch(name) is not None
