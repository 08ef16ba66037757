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
"""Where Dynamo calls torch's own code, such as a stock layer, in a frame that it compiles."""
_OWN = str(Path(__file__).parents[1])


class Caller(NamedTuple):
    """What calls the compiled graph that is about to run.

    Attributes:
        frame: the program's, the one in which compiled autograd runs a graph of its own, or the one
            that has autograd's engine run; ``None`` in a thread of the engine's.
        depth: so many frames it is out of the one that asked.
        inner: the code that it calls.
    """

    frame: FrameType | None
    depth: int
    inner: CodeType

    @property
    def is_engine(self) -> bool:
        """Whether it is autograd's engine that calls, which is no module's method."""
        return self.frame is None or self.frame.f_code.co_filename.endswith(_ENGINE)


def caller() -> Caller:
    """Return what calls the compiled graph that is about to run.

    Source: Dynamo runs a frame's new code under its old name, file and locals; between it and
    the graph lie only the frames of AOTAutograd and Inductor.
    """
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
    """The frame that called a graph.

    Attributes:
        artifact: refers to what was called.
        code: what it ran: Dynamo's, of one compile, which calls its graph itself, or the engine's.
        variable: held the module, empty where there is none.
        depth: how far out it was.
        inner: the code of torch's that it called.
        names: the name of the call by the module that it was on.
    """

    artifact: Callable[[], object]
    code: CodeType | None
    variable: str
    depth: int
    inner: CodeType
    names: dict[int, tuple[Callable[[], torch.nn.Module | None], str]]

    def is_of(self, artifact: object, code: CodeType | None, depth: int) -> bool:
        """Tell whether it is of an artifact that code, so far out, calls."""
        return self.artifact() is artifact and (self.code, self.depth) == (code, depth)


def _value_of_variable() -> Callable[[FrameType, str], Any]:
    """Return what gives the value of one variable of a frame, ``None`` where it has none.

    Python 3.12 makes a dictionary of all variables where one is asked for by ``f_locals``, with an
    error raised and dropped for each that has no value: 11 us in Dynamo's code of a Llama.

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
"""Returns the value of a variable of a frame, given its name; ``None`` where it has none."""


def compiled_frame(caller: Caller) -> FrameType | None:
    """Return the frame that Dynamo compiled: the caller's, or a stock layer's caller."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not caller.frame:
        if frame.f_code.co_filename.endswith(_STOCK):
            return frame
        frame = frame.f_back
    return caller.frame


class KnownCalls:
    """The names of calls, found again without a walk through some twenty frames of torch's.

    A frame of the same code, as far out as then and around the same code of torch's, is the one
    that calls the graph again; which module it is of is looked at each time.
    """

    def __init__(self) -> None:
        self._known: dict[int, _KnownCall] = {}
        _INSTANCES.append(weakref.ref(self, _INSTANCES.remove))

    def forget(self) -> None:
        """Know none any more."""
        self._known = {}

    def name(self, artifact: object) -> str | None:
        """Return the name of the call that is about to be made, where it is known.

        It calls nothing of ours but what reads the variable: amid a step no cache has our code any
        more, and the first call of a function takes a microsecond or several.
        """
        known = self._known.get(identity(artifact))
        try:
            inner = None if known is None else sys._getframe(known.depth)
        except ValueError:  # nothing is as far out
            return None
        if known is None or inner is None or inner.f_code is not known.inner:
            return None
        frame = inner.f_back
        if (frame and frame.f_code) is not known.code or known.artifact() is not artifact:
            return None
        module = value_of(frame, known.variable) if frame is not None and known.variable else None
        if type(module) is tuple:  # all that the frame was passed
            module = module[0] if module else None
        named = known.names.get(identity(module))
        return named[1] if named is not None and named[0]() is module else None

    def keep(
        self, artifact: object, caller: Caller, module: torch.nn.Module | None, name: str
    ) -> None:
        """Know a call again, if it is on a module or the engine's."""
        if module is None and not caller.is_engine:
            return  # another call by it may be on one
        code = None if caller.frame is None else caller.frame.f_code
        known = self._known.get(identity(artifact))
        if known is None or not known.is_of(artifact, code, caller.depth):
            variable, refers = _variable_of(module, caller.frame), weakref.ref(artifact)
            known = _KnownCall(refers, code, variable, caller.depth, caller.inner, {})
            self._known[identity(artifact)] = known
        known.names[identity(module)] = (
            _no_module if module is None else weakref.ref(module),
            name,
        )


_INSTANCES: list[weakref.ref[KnownCalls]] = []
"""No set of weak references: one thread may make a profile while another compiles."""


def forget_known_calls() -> None:
    """Have each call be looked at anew: which graph an artifact is may be another one now."""
    for known in [refers() for refers in tuple(_INSTANCES)]:
        if known is not None:
            known.forget()


def _no_module() -> None:
    """Refer to no module."""


def _variable_of(module: torch.nn.Module | None, frame: FrameType | None) -> str:
    if module is None or frame is None:
        return ""
    scope = frame.f_locals
    vararg = first_vararg(frame.f_code, scope) or ("", None)
    return next((name for name, value in scope.items() if value is module), vararg[0])


def is_compiled_autograd_wrapper(code: CodeType) -> bool:
    """Tell whether code is what runs the graphs of compiled autograd.

    Source: ``AutogradCompilerInstance.end_capture``, ``runtime_wrapper``.
    """
    return code.co_filename.endswith(COMPILER) and running_names.RUNTIME_WRAPPER.is_called(
        code.co_name
    )


def module_of(frame: FrameType) -> torch.nn.Module | None:
    """Return the module whose method runs in a frame.

    What resumes after a graph break is still the method.

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
    # A decorator that does not say what it wraps hides the method; its name for itself is left.
    named = scope.get("self") if code.co_varnames[:1] == ("self",) else None
    return named if is_module(named) else None


@functools.lru_cache(4096)  # each call of a graph that is recorded asks of some ten frames
def is_torch_internal(file: str) -> bool:
    """Tell whether a frame of a file can lie between a user's frame and the graph that it calls."""
    if file.endswith(COMPILER):
        return False
    return file.startswith((*_TORCH_INTERNALS, _OWN, "<eval_with_key>")) or file.endswith(
        "contextlib.py"
    )
