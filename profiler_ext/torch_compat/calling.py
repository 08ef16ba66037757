"""Owns which module's own frame calls the compiled graph that is about to run."""

from __future__ import annotations

import functools
import re
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType

import torch

from profiler_ext.torch_compat.names import running_names
from profiler_ext.torch_compat.process import is_module, methods_of

_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.*)_at_\d+$")
_MACHINERY = tuple(
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
_OWN = str(Path(__file__).parents[1])

_References = dict[int, weakref.ref[torch.nn.Module]]


class CallingModules:
    """Tells which module calls; of the frames where one was found once it is known again."""

    def __init__(self) -> None:
        """Know of no frame yet."""
        self._found: dict[int, tuple[CodeType, str, _References]] = {}

    def forget(self) -> None:
        """Hold no code of the program's any more."""
        self._found = {}

    def module_of(self, frame: FrameType) -> torch.nn.Module | None:
        """Return the module whose own frame this is, if it is one's.

        Args:
            frame: what :func:`caller` returned.
        """
        code, scope = frame.f_code, frame.f_locals
        if (found := self._found.get(id(code))) is not None:
            module = scope.get(found[1])
            known = found[2].get(id(module))
            if known is not None and known() is module:
                return module
        variable = _variable_of_module(code, scope)
        return None if variable is None else self._kept(code, variable, scope[variable])

    def _kept(self, code: CodeType, variable: str, module: torch.nn.Module) -> torch.nn.Module:
        """Keep the code, too, so that no other has its place."""
        found = self._found.setdefault(id(code), (code, variable, {}))
        if found[1] == variable:
            found[2][id(module)] = weakref.ref(module)
        return module


def caller() -> FrameType | None:
    """Return the frame that calls the compiled graph that is about to run.

    It is the program's, or the one in which compiled autograd runs a graph of its own.

    Source: Dynamo runs a frame's new code under its old name, file and locals; between it and
    the graph lie only the frames of AOTAutograd and Inductor.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        is_machinery(frame.f_code.co_filename) or _is_of_compiler(frame.f_code)
    ):
        frame = frame.f_back
    return frame


def runs_copies(code: CodeType) -> bool:
    """Tell whether code is what runs the graphs of compiled autograd.

    Source: ``AutogradCompilerInstance.end_capture``, ``runtime_wrapper``.
    """
    return code.co_filename.endswith(COMPILER) and running_names.RUNTIME_WRAPPER.is_called(
        code.co_name
    )


def _is_of_compiler(code: CodeType) -> bool:
    return code.co_filename.endswith(COMPILER) and not runs_copies(code)


def _variable_of_module(code: CodeType, scope: Mapping[str, object]) -> str | None:
    """Return the variable that holds the module whose method runs.

    What resumes after a graph break is still the method.

    Source: ``torch/_dynamo/resume_execution.py``, ``TORCH_DYNAMO_RESUME_IN_PREFIX``; there
    values of the stack come before ``self``.
    """
    modules = [each for each in scope.values() if is_module(each)]
    place = (code.co_filename, _RESUMED.sub(r"\1", code.co_name)) if modules else ("", "")
    for module in modules:
        for method in methods_of(module, place[1]):
            first = "".join(method.co_varnames[:1])
            if (method.co_filename, method.co_name) == place and scope.get(first) is module:
                return first
    # A decorator that does not say what it wraps hides the method; its name for itself is left.
    is_named = code.co_varnames[:1] == ("self",) and is_module(scope.get("self"))
    return "self" if is_named else None


@functools.lru_cache(4096)  # each call of a graph that is recorded asks of some ten frames
def is_machinery(file: str) -> bool:
    """Tell whether a frame of a file can lie between a user's frame and the graph that it calls."""
    if file.endswith(COMPILER):
        return False
    return file.startswith((*_MACHINERY, _OWN, "<eval_with_key>")) or file.endswith("contextlib.py")
