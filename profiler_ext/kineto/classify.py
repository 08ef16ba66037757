"""Owns the verdicts on an event's name or category that attribution asks for.

Pure functions over one string, on top of the spellings of :mod:`profiler_ext.kineto.names`.
"""

from __future__ import annotations

import re

from profiler_ext.kineto import names
from profiler_ext.kineto.names import Category

_GENERATED = re.compile(
    r"triton_(?:[a-z]+_)?fused_|triton_(?:poi|red|per|for|tem|mix|split_scan)_|cpp_fused_"
)
_DISPATCHED_OP = re.compile(r"[A-Za-z_]\w*::[A-Za-z_][\w.]*")
_BENCHMARKING = re.compile(r"^CachingAutotuner\.|benchmark|autotuning|do_bench")
_NOT_DISPATCHED = ("autograd::", "torch::autograd::")


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


def is_profiler_range(category: str) -> bool:
    """Tell whether the category is that of ranges in which a device's counters were read.

    Kineto lays them out evenly over the recording. Source: ``CuptiRangeProfiler.cpp``.
    """
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
    """Tell whether a range says on which module a graph is called."""
    return names.marked_module(name) is not None


def is_copies_mark(name: str) -> bool:
    """Tell whether a range marks a call of a graph of compiled autograd."""
    return bool(names.marked_copies(name))


def is_step(name: str) -> bool:
    """Tell whether the event spans a profiled step."""
    return names.step_number(name) is not None


def is_compiling(name: str) -> bool:
    """Tell whether the event is compile work, so that launches within it are not the model's.

    CUDA graphs are warmed up and recorded inside a timed range too; those run the model.
    """
    timed = name.endswith("(dynamo_timed)") and "cudagraph" not in name.lower()
    return timed or name.startswith("CachingAutotuner.")


def is_benchmarking(name: str) -> bool:
    """Tell whether compile work is a trial: Inductor times kernels on real memory to choose one.

    Source: ``torch/_inductor``: ``CachingAutotuner``, ``benchmark_fused_nodes``,
    ``benchmark_codegened_module``, ``mm_template_autotuning``, ``collective_compute_do_bench``.
    """
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
    """Return what a device event ran, whoever looks at it.

    The name of a memset or a copy also tells the kind of memory, as far as that run knew it.

    Args:
        name: the event's name.
        category: its category: ``kernel``, ``gpu_memcpy`` or ``gpu_memset``.
    """
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
    """Tell whether the category is that of what the profiler itself did."""
    return category == Category.OVERHEAD
