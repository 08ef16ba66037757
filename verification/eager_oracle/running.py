"""Running a program under the profiler: in this process, from a file of its own."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

import profiler_ext
from profiler_ext.sessions.session import Session

_STEPS = 2


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a program.

    Attributes:
        file: where its source stands.
        session: what was recorded.
    """

    file: Path
    session: Session


def run_program(text: str, name: str, folder: Path, device: str) -> Run:
    """Run a program, and record two of its steps.

    Args:
        text: its source.
        name: the name of its module.
        folder: where its source is to stand.
        device: where its tensors are.
    """
    file = folder / f"{name}.py"
    file.write_text(text)
    torch.manual_seed(0)
    program = _imported(file)
    program.prepare(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hooks of values that are no leaves, and the like
        program.step()
        return Run(file, _recorded(program.step, folder))


def _recorded(step: Callable[[], None], folder: Path) -> Session:
    with profiler_ext.profile(
        record_shapes=True, strict=True, user_roots=(str(folder),)
    ) as profile:
        for _ in range(_STEPS):
            step()
            profile.step()
    return profile.session


def _imported(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    del sys.modules[file.stem]
    return module
