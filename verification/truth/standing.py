"""Where a program stands while it runs: the line of its innermost frame, and the module."""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch

from verification.truth.ops import Place

_ENGINE = "_engine_run_backward"
_CUSTOM_OP = "torch/_library/autograd.py"
_CHECKPOINT = "torch/utils/checkpoint.py"
_HERE = Path(__file__).parent
_OWN = frozenset(str(_HERE / f"{name}.py") for name in ("standing", "making", "running"))
_LIBRARY = (
    str(Path(torch.__file__).parent),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")),
)
_PACKAGES = sysconfig.get_path("purelib")


def first_names(model: object) -> dict[str, str]:
    """Return each name of a module with the first one that it has: it may be held twice."""
    if not isinstance(model, torch.nn.Module):
        return {}
    first = {module: name for name, module in model.named_modules()}
    return {name: first[each] for name, each in model.named_modules(remove_duplicate=False)}


class Standing:
    """The modules of a model whose calls have not returned."""

    def __init__(self, model: object) -> None:
        named = model.named_modules() if isinstance(model, torch.nn.Module) else ()
        self._names = {module: name for name, module in named}
        self._called = [""]

    def place(self) -> Place | None:
        """Return where the program stands; ``None`` within autograd's engine."""
        line = _line()
        return None if line is None else Place(*line, self._called[-1])

    def is_in_engine(self) -> bool:
        """Tell whether autograd's engine runs, called by anybody."""
        frames = list(_frames())
        return bool(frames) and frames[-1].f_code.co_name == _ENGINE

    def is_run_again(self) -> bool:
        """Tell whether a checkpoint runs its forward once more, within autograd's engine."""
        return any(frame.f_code.co_filename.endswith(_CHECKPOINT) for frame in _frames())

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Follow the calls of modules, with the hooks of each."""
        call = torch.nn.Module.__call__

        def called(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            is_named = module in self._names
            self._called += [self._names[module]] if is_named else []
            try:
                return call(module, *args, **kwargs)
            finally:
                del self._called[len(self._called) - is_named :]

        with mock.patch.object(torch.nn.Module, "__call__", called):
            yield


def _frames() -> Iterator[FrameType]:
    """Yield the frames from the innermost one outwards; the last may be that of the engine."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = None if frame.f_code.co_name == _ENGINE else frame.f_back


def _line() -> tuple[str, int] | None:
    """Return the innermost line; within a ``custom_op``'s backward none, as of any other op's."""
    frame: FrameType | None = sys._getframe(1)
    innermost: tuple[str, int] | None = None
    while frame is not None and frame.f_code.co_name != _ENGINE:
        if frame.f_code.co_name == "backward" and frame.f_code.co_filename.endswith(_CUSTOM_OP):
            return None
        if innermost is None and _is_model(frame.f_code.co_filename):
            innermost = frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return innermost


def _is_model(file: str) -> bool:
    if file in _OWN or file.startswith((_LIBRARY[0], "<")):
        return False
    return file.startswith(_PACKAGES) or not file.startswith(_LIBRARY[1:])
