"""Which module's own frame calls the compiled graph that is about to run."""

from __future__ import annotations

import ctypes
import functools
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from profiler_ext.isolation.hook_protocols import identity
from profiler_ext.torch_compat.names import running_names
from profiler_ext.torch_compat.process import first_vararg, is_module, methods_of, resumed

_TORCH_INTERNALS = tuple(
    str(Path(torch.__file__).parent / folder)
    for folder in (
        "_dynamo",
        "_functorch",
        "_higher_order_ops",
        "_inductor",
        "_ops.py",
        "autograd/function.py",
        "fx",
        "nn/modules/module.py",
        "utils",
    )
)
COMPILER = "/torch/_dynamo/compiled_autograd.py"
_ENGINE = "/torch/autograd/graph.py"
_STOCK = "/torch/_dynamo/external_utils.py"
"""Dynamo calls torch's own code from there, such as a stock layer in a compiled frame."""
_OWN = str(Path(__file__).parents[1])


class Caller(NamedTuple):
    """What calls the compiled graph that is about to run."""

    frame: FrameType | None
    """The program's, compiled autograd's, or the one that runs autograd's engine; ``None`` in a
    thread of the engine."""
    depth: int  # in frames
    inner: CodeType  # that it calls

    @property
    def is_engine(self) -> bool:
        """Whether autograd's engine calls."""
        return self.frame is None or self.frame.f_code.co_filename.endswith(_ENGINE)


def caller() -> Caller:
    """Return what calls the compiled graph that is about to run."""
    # Dynamo runs a frame's new code under its old name, file and locals; between it and the graph
    # are only frames of AOTAutograd and Inductor.
    depth, frame = 0, sys._getframe(1)
    inner = frame.f_code
    while is_torch_internal(frame.f_code.co_filename) or (
        frame.f_code.co_filename.endswith(COMPILER)
        and not is_compiled_autograd_wrapper(frame.f_code)
    ):
        depth, inner = depth + 1, frame.f_code
        if frame.f_back is None:
            return Caller(None, depth, inner)
        frame = frame.f_back
    return Caller(frame, depth, inner)


@dataclass(frozen=True, slots=True)
class _KnownCall:
    """The frame that called a graph."""

    artifact: Callable[[], object]  # a weak reference
    code: CodeType | None  # Dynamo's, of one compile, or the engine's
    variable: str  # that held the module, if any
    depth: int
    inner: CodeType  # torch's, that it called
    names: dict[int, tuple[Callable[[], torch.nn.Module | None], str]]  # by the module

    def is_of(self, artifact: object, code: CodeType | None, depth: int) -> bool:
        return self.artifact() is artifact and (self.code, self.depth) == (code, depth)


def _value_of_variable() -> Callable[[FrameType, str], Any]:
    """Return a function for the value of one variable of a frame, ``None`` if unset.

    In Python 3.12 ``f_locals`` builds a dictionary of all variables, with an error raised and
    dropped for each unset one: 11 us in Dynamo's code of a Llama.

    Source: ``PyFrame_GetVar`` of Python's C API, from 3.12 on.
    """
    try:
        result = ("PyFrame_GetVar", ctypes.pythonapi)
        get_var = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object)(result)
    except AttributeError:
        return lambda frame, name: frame.f_locals.get(name)

    def value(frame: FrameType, name: str) -> Any:
        try:
            return get_var(frame, name)
        except NameError:
            return None

    return value


value_of = _value_of_variable()
"""Returns the value of a variable of a frame, by name; ``None`` if unset."""


def compiled_frame(caller: Caller) -> FrameType | None:
    """Return the frame that Dynamo compiled: the caller's, or a stock layer's caller."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not caller.frame:
        if frame.f_code.co_filename.endswith(_STOCK):
            return frame
        frame = frame.f_back
    return caller.frame


class KnownCalls:
    """The names of calls, without a walk through some twenty frames of torch.

    A frame with the same code, depth and inner code calls the same graph; its module is read each
    time.
    """

    def __init__(self) -> None:
        self._known: dict[int, _KnownCall] = {}
        _INSTANCES.append(weakref.ref(self, _INSTANCES.remove))

    def forget(self) -> None:
        """Forget all calls."""
        self._known = {}

    def name(self, artifact: object) -> str | None:
        """Return the name of the call about to be made, if known."""
        # As few calls as possible: in a step the caches are cold, and each costs microseconds.
        known = self._known.get(identity(artifact))
        try:
            inner = None if known is None else sys._getframe(known.depth)
        except ValueError:  # the stack is not as deep
            return None
        if known is None or inner is None or inner.f_code is not known.inner:
            return None
        frame = inner.f_back
        if (frame and frame.f_code) is not known.code or known.artifact() is not artifact:
            return None
        module = value_of(frame, known.variable) if frame is not None and known.variable else None
        if type(module) is tuple:  # ``*args``
            module = module[0] if module else None
        named = known.names.get(identity(module))
        return named[1] if named is not None and named[0]() is module else None

    def keep(
        self, artifact: object, caller: Caller, module: torch.nn.Module | None, name: str
    ) -> None:
        """Keep the name of a call on a module or by the engine."""
        if module is None and not caller.is_engine:
            return  # another call of it may have a module
        code = None if caller.frame is None else caller.frame.f_code
        known = self._known.get(identity(artifact))
        if known is None or not known.is_of(artifact, code, caller.depth):
            variable, refers = _variable_of(module, caller.frame), weakref.ref(artifact)
            known = _KnownCall(refers, code, variable, caller.depth, caller.inner, {})
            self._known[identity(artifact)] = known
        module_ref = (lambda: None) if module is None else weakref.ref(module)
        known.names[identity(module)] = module_ref, name


_INSTANCES: list[weakref.ref[KnownCalls]] = []
"""No WeakSet: one thread may create a profiler while another compiles."""


def forget_known_calls() -> None:
    """Forget all known calls: an artifact's graph may have changed."""
    for known in [refers() for refers in tuple(_INSTANCES)]:
        if known is not None:
            known.forget()


def _variable_of(module: torch.nn.Module | None, frame: FrameType | None) -> str:
    if module is None or frame is None:
        return ""
    scope = frame.f_locals
    vararg = first_vararg(frame.f_code, scope) or ("", None)
    return next((name for name, value in scope.items() if value is module), vararg[0])


def is_compiled_autograd_wrapper(code: CodeType) -> bool:
    """Tell whether code runs the graphs of compiled autograd.

    Source: ``AutogradCompilerInstance.end_capture``, ``runtime_wrapper``.
    """
    return code.co_filename.endswith(COMPILER) and running_names.RUNTIME_WRAPPER.is_called(
        code.co_name
    )


def module_of(frame: FrameType) -> torch.nn.Module | None:
    """Return the module whose method runs in a frame, also when resumed after a graph break.

    Source: ``torch/_dynamo/resume_execution.py``, ``ContinueExecutionCache``; there values of the
    stack come before ``self``.
    """
    code, scope = frame.f_code, frame.f_locals
    vararg = first_vararg(code, scope)
    modules = [each for each in (*scope.values(), *(vararg or ())) if is_module(each)]
    name = resumed(code.co_name) or code.co_name
    place = (code.co_filename, name) if modules else ("", "")
    for module in modules:
        for method in methods_of(module, place[1]):
            first = "".join(method.co_varnames[:1])
            is_first = scope.get(first) is module or (vararg and vararg[1] is module)
            if (method.co_filename, method.co_name) == place and is_first:
                result: torch.nn.Module = module
                return result
    # A decorator without ``__wrapped__`` hides the method; ``self`` is left.
    named = scope.get("self") if code.co_varnames[:1] == ("self",) else None
    return named if is_module(named) else None


@functools.lru_cache(4096)  # some ten frames at each recorded call
def is_torch_internal(file: str) -> bool:
    """Tell whether a frame of a file can be between the user's frame and a compiled graph."""
    if file.endswith(COMPILER):
        return False
    is_internal = file.startswith((*_TORCH_INTERNALS, _OWN, "<eval_with_key>"))
    return is_internal or file.endswith("contextlib.py")
