"""Torch's state in the running process: compile ids, Dynamo scopes, live artifacts, versions."""

from __future__ import annotations

import gc
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeGuard, cast

import torch

from profiler_ext.torch_compat import device_memory, points, private
from profiler_ext.torch_compat.import_hooks import DYNAMO, is_importing
from profiler_ext.torch_compat.living import living
from profiler_ext.torch_compat.names import artifact_names, running_names


def first_vararg(code: CodeType, scope: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Return the name of ``*args`` and its first value, for code without other arguments."""
    if code.co_argcount or not code.co_flags & inspect.CO_VARARGS:
        return None
    name = code.co_varnames[code.co_kwonlyargcount]
    vararg = scope.get(name)
    return (name, vararg[0]) if type(vararg) is tuple and vararg else None


_GRAPH_TREES = "torch._inductor.cudagraph_trees"
_MAX_FRAMES = 16  # from a hook on a capture to who captures, with the frames of this package
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.*)_at_\d+$")


def version() -> str:
    """Return torch's version."""
    return str(torch.__version__)


def debug_settings() -> tuple[str, ...]:
    """Return what is on in this process that slows each op, in the order of their usual cost."""
    cuda: Any = torch.cuda
    keeps_history = cuda.is_initialized() and device_memory.lists_blocks()
    has_history = keeps_history and bool(running_names.HISTORY_ENABLED.get()())
    is_on = {
        "anomaly detection": torch.is_anomaly_enabled(),
        "CUDA_LAUNCH_BLOCKING": os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"),
        "memory history": has_history and not device_memory.has_stacks(),
        "PROFILER_EXT_MEMORY=oom": has_history and device_memory.has_stacks(),
        "TORCH_SHOW_DISPATCH_TRACE": os.environ.get("TORCH_SHOW_DISPATCH_TRACE") is not None,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
    }
    return tuple(name for name in is_on if is_on[name])


def device_name() -> str:
    """Return the profiler's name of the device in use; ``cpu`` without one."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return "cpu"
    module: Any = torch.get_device_module(accelerator)
    return str(module.get_device_name() if hasattr(module, "get_device_name") else accelerator)


def current_compile_id() -> str | None:
    """Return the current compile id, ``0/0``, or ``None`` outside a compile.

    Source: ``torch/_guards.py``, ``CompileContext.current_compile_id``; AOTAutograd restores it
    when it compiles a backward lazily.
    """
    compile_id = running_names.CURRENT_COMPILE_ID.get()()
    return None if compile_id is None else str(compile_id)


def in_compiled_autograd() -> bool:
    """Tell whether a graph of compiled autograd is being compiled.

    Source: ``torch/_guards.py``, ``CompileId.__str__``: such an id starts with ``!``.
    """
    return (current_compile_id() or "").startswith("!")


def dynamo_scope(output_graph: Any) -> Mapping[str, Any]:
    """Return the local variables of the frame that Dynamo compiled."""
    scope: Mapping[str, Any] = running_names.LOCAL_SCOPE.of(output_graph)
    return scope


def dynamo_globals(output_graph: Any) -> Mapping[str, Any]:
    """Return the global variables of the frame that Dynamo compiled."""
    scope: Mapping[str, Any] = running_names.GLOBAL_SCOPE.of(output_graph)
    return scope


def dynamo_code(output_graph: Any) -> CodeType:
    """Return the code of the frame that Dynamo compiled."""
    code: CodeType = running_names.FRAME_CODE.of(running_names.ROOT_TX.of(output_graph))
    return code


def traced_code(output_graph: Any) -> list[CodeType]:
    """Return the code that Dynamo traced for a graph, each once."""
    traced: list[CodeType] = running_names.TRACED_CODE.of(output_graph)
    return list({id(code): code for code in traced}.values())


def is_resumed(code: CodeType) -> bool:
    """Tell whether code is a resume function, which Dynamo made for after a graph break."""
    return code.co_name.startswith(running_names.RESUMED_CODE.text)


def resumed(name: str) -> str | None:
    """Return the function that a resume function belongs to, by its name.

    Source: ``torch/_dynamo/resume_execution.py``, ``TORCH_DYNAMO_RESUME_IN_PREFIX``.
    """
    match = _RESUMED.match(name)
    return None if match is None else match.group(1)


def dynamo_self(output_graph: Any) -> tuple[str, torch.nn.Module] | None:
    """Return the module whose method is compiled, with Dynamo's name for it, ``L['self']``.

    A decorator's wrapper may take it as the first of ``*args``: ``L['args'][0]``.
    """
    code, scope = dynamo_code(output_graph), dynamo_scope(output_graph)
    first = "".join(code.co_varnames[:1])
    dynamo_path, module = f"L['{first}']", scope.get(first)
    if vararg := first_vararg(code, scope):
        dynamo_path, module = f"L['{vararg[0]}'][0]", vararg[1]
    if not is_module(module):
        return None
    is_method = any(method is code for method in methods_of(module, code.co_name))
    return (dynamo_path, module) if is_method else None


def methods_of(module: torch.nn.Module, name: str) -> Iterator[CodeType]:
    """Yield the code of a module's method and ``forward``, its own and its class's, unwrapped."""
    for each in (name, "forward"):
        for method in (own_attributes(module).get(each), _of_class(type(module), each)):
            for _ in range(_WRAPPERS):
                if method is None:
                    break
                if issubclass(type(code := _attribute_or_none(method, "__code__")), CodeType):
                    yield code
                method = _attribute_or_none(method, "__wrapped__")


_WRAPPERS = 100  # decorators around one method; ``__wrapped__`` may be cyclic


def _attribute_or_none(method: Any, name: str) -> Any:
    """An attribute of a method, which may be a user's object that raises."""
    try:
        return getattr(method, name, None)
    except Exception:
        return None


def _of_class(of: type, name: str) -> Any:
    """An entry of a class, without calling its metaclass."""
    return next((vars(each)[name] for each in type.mro(of) if name in vars(each)), None)


def is_module(thing: object) -> TypeGuard[torch.nn.Module]:
    """Tell whether something is a module, by its type, without running user code."""
    return issubclass(type(thing), torch.nn.Module)


def own_attributes(module: torch.nn.Module) -> dict[str, Any]:
    """Return the attributes of a module itself, without running user code."""
    attributes: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return attributes


_OWN = str(Path(__file__).parents[1])


def anything_compiled() -> bool:
    """Tell whether Inductor compiled or loaded a graph in this process already."""
    known = (artifact_names.COUNTERS, artifact_names.UNIQUE_GRAPHS)
    if artifact_names.COUNTERS.module not in sys.modules or private.unavailable(known):
        return False
    return bool(artifact_names.UNIQUE_GRAPHS.of(artifact_names.COUNTERS.get()["stats"]))


_RECORDED_NAMES: dict[str, str] = {}


_RECORDING = (running_names.PROFILER_ENABLED, running_names.RECORD_FUNCTION)
_CALLS = (
    *_RECORDING,
    running_names.CURRENT_COMPILE_ID,
    running_names.COMPILED_BACKWARD,
    running_names.FORWARD_CLASS,
    running_names.AOT_ID,
    running_names.RUNTIME_WRAPPER,
    running_names.NODE_SEQUENCE_NR,
)


def can_record() -> bool:
    """Tell whether this torch has what :func:`recording` and :func:`profiler_is_on` need."""
    return not private.unavailable(_RECORDING)


def in_graph_trees() -> bool:
    """Tell whether Inductor's runner of CUDA graphs calls the caller of this package."""
    trees = sys.modules.get(_GRAPH_TREES)
    frame: FrameType | None = sys._getframe(1) if trees is not None else None
    for _ in range(_MAX_FRAMES):
        if frame is None or frame.f_code.co_filename == getattr(trees, "__file__", None):
            break
        frame = frame.f_back
    else:
        return False
    return frame is not None


def can_mark_calls() -> bool:
    """Tell whether this torch has all that a call's mark needs."""
    return not private.unavailable(_CALLS)


def module_call() -> CodeType:
    """Return the code through which every module is called."""
    code: CodeType = running_names.MODULE_CALL.get().__code__
    return code


def called_module(frame: FrameType) -> Any:
    """Return the called module, from a frame of :func:`module_call`."""
    return running_names.MODULE_CALL.given(frame)


def call_arguments(frame: FrameType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments that a frame passes on, where it names them as torch's wrappers do."""
    own = frame.f_locals
    args, kwargs = own.get("args"), own.get("kwargs")
    return args if isinstance(args, tuple) else (), kwargs if isinstance(kwargs, dict) else {}


def sizes_of(thing: object) -> tuple[int, ...] | None:
    """Return the sizes of a tensor; ``None`` of anything else, and where they are symbolic."""
    if not isinstance(thing, torch.Tensor):
        return None
    sizes = tuple(torch.Tensor.size(thing))
    return sizes if all(type(each) is int for each in sizes) else None


def is_of_numbers(thing: object) -> bool:
    """Tell whether something is a tensor of whole numbers, as token ids are."""
    return isinstance(thing, torch.Tensor) and thing.dtype in (torch.int64, torch.int32)


def event_type() -> Any:
    """Return the context manager class that gives the profiler one event."""
    return running_names.RECORD_FUNCTION.get()


def recording(name: str) -> Any:
    """Return a context manager that gives the profiler one event.

    The profiler keeps a pointer to the name until its trace is written
    (``torch/csrc/autograd/init.cpp``, ``_RecordFunctionFast``).
    """
    return event_type()(_RECORDED_NAMES.setdefault(name, name))


def profiler_is_on() -> bool:
    """Tell whether a profiler is recording."""
    return bool(running_names.PROFILER_ENABLED.get())


def finish_device_work() -> None:
    """Wait until the accelerator has done all enqueued work."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def threads_config(*, are_all: bool) -> Any:
    """Return the profiler configuration for all threads, or for the one that starts it.

    ``None``, which records that thread and autograd's for it, if this torch has no such thing.
    """
    if not running_names.PROFILER_CONFIG.is_available():
        return None
    return running_names.PROFILER_CONFIG.get()(profile_all_threads=are_all)


def check_optimizer_steps() -> None:
    """Raise if this torch does not call back after an optimizer step."""
    running_names.AFTER_OPTIMIZER.check()


def on_optimizer_step(callback: Callable[..., None]) -> Any:
    """Call back after each eager optimizer step; returns a handle with ``remove()``."""
    return running_names.AFTER_OPTIMIZER.get()(callback)


def on_module_calls(
    begins: Callable[..., None], ends: Callable[..., None], registered: Callable[..., None]
) -> Iterator[Any]:
    """Call back around each call of a module, and when one is made part of another.

    Yields a handle for each, with ``remove()``. Calls that raise end too, with ``None``.
    """
    modules = torch.nn.modules.module
    yield modules.register_module_forward_pre_hook(begins)
    yield modules.register_module_forward_hook(ends, always_call=True)
    yield modules.register_module_module_registration_hook(registered)


def live_optimizer() -> Any | None:
    """Return an optimizer that the program holds, if any."""
    return next(iter(living(torch.optim.Optimizer)), None)


def set_memory_budget(part: float) -> None:
    """Let graphs that are compiled later keep a part of their activations."""
    module, _, name = points.MEMORY_BUDGET.rpartition(".")
    setattr(import_module(module), name, part)


def is_compiled_module(module: Any) -> bool:
    """Tell whether a module is one that ``torch.compile`` made of another."""
    return type(module).__name__ == running_names.OPTIMIZED_MODULE.name


def reports_frame_exit() -> bool:
    """Tell whether this torch has what :func:`frame_edge` needs."""
    return running_names.COMPILE_WRAPPER.is_available()


def frame_edge() -> FrameType | None:
    """Return the compiled function's call that is setting or restoring its evaluator.

    Source: ``torch/_dynamo/eval_frame.py``, ``compile_wrapper`` sets the frame evaluator through
    ``_maybe_set_eval_frame`` before the compiled frame, and restores it after that and its events;
    ``torch.compiler.disable`` inside does the same.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    entry = running_names.COMPILE_WRAPPER
    return frame if frame is not None and entry.is_called(frame.f_code.co_name) else None


def compiled_callable(edge: FrameType) -> Any:
    """Return what was given to ``torch.compile``: a module or function; ``None`` if unknown.

    Source: ``torch/_dynamo/eval_frame.py``, ``compile_wrapper`` calls the parameter of the function
    around it; ``external_utils.py``, ``wrap_inline`` may have wrapped it.
    """
    if not running_names.COMPILING.is_available():
        return None
    function = running_names.COMPILING.given(edge)
    for _ in range(_WRAPPERS):
        for each in (function, _attribute_or_none(function, "__self__")):
            if is_module(each):
                return each
        if (wrapped := _attribute_or_none(function, "__wrapped__")) is None:
            break
        function = wrapped
    return function


def not_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what calls a function that Dynamo compiles no frame of, without importing Dynamo.

    ``torch.compiler.disable`` would import it; before the program does nothing is compiled.
    """
    disabled: Callable[..., Any] | None = None

    def called(*args: Any) -> Any:
        nonlocal disabled
        if disabled is None:
            if DYNAMO not in sys.modules or is_importing(DYNAMO):
                return function(*args)
            disabled = cast("Any", torch.compiler).disable(function)
        return disabled(*args)

    return called


def compiled_optimizer(edge: FrameType) -> Any | None:
    """Return the optimizer whose method ``step`` was given to ``torch.compile``, if it was one."""
    if not running_names.COMPILING.is_available():
        return None
    owner = _attribute_or_none(running_names.COMPILING.given(edge), "__self__")
    optimizer: type = torch.optim.Optimizer
    return owner if issubclass(type(owner), optimizer) else None


def live_artifacts() -> list[Any]:
    """Return the compiled graphs that are still referenced, and so may run.

    Source: ``torch/_inductor/output_code.py``, ``CompiledFxGraph``.
    """
    if artifact_names.ARTIFACT.module not in sys.modules:
        return []
    if not artifact_names.ARTIFACT.is_available():
        return []
    kind = artifact_names.ARTIFACT.get()
    if any(type(each) is kind for each in gc.get_objects()):
        gc.collect()  # drop what is only in reference cycles, after a reset
    return [each for each in gc.get_objects() if type(each) is kind]
