"""Which code is the program's, and which of its lines."""

from __future__ import annotations

import dis
import os
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType

from profiler_ext.source_paths import absolute, cell_number

_PACKAGES = frozenset(
    {
        *("torch", "torchgen", "functorch", "triton", "profiler_ext"),
        "rich",  # `profiler-ext run` shows its progress with it
        *("IPython", "ipykernel", "traitlets", "tornado", "zmq"),  # they run a notebook's cells
        # Inductor calls them
        *("numpy", "sympy", "mpmath", "networkx", "jinja2", "filelock", "typing_extensions"),
    }
)

_CONFIGURED, _CONFIGURATION = "transformers", "configuration_"
"""Dynamo's guards read some forty attributes of a configuration at each call, 280 lines of Python
without operators (``transformers/configuration_utils.py``, ``__getattribute__``)."""

_CHECKPOINT = str(Path("torch", "utils", "checkpoint.py"))
_RECOMPUTING = frozenset({"recompute_fn", "backward"})
_CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})
_RETURN, _GLOBAL = "RETURN_VALUE", "LOAD_GLOBAL"
_RESUMED, _RESUMED_CODE = "__resume_at", "torch_dynamo_resume_in_"
"""With other names more lines would be borrowed, but none would be wrong."""


def resumes(code: CodeType) -> bool:
    """Tell whether code is a resume function, which Dynamo calls after a graph break.

    Source: ``torch/_dynamo/resume_execution.py``, ``TORCH_DYNAMO_RESUME_IN_PREFIX``.
    """
    return code.co_name.startswith(_RESUMED_CODE)


def borrowed_lines(code: CodeType, knows_resumed: bool) -> frozenset[int]:
    """Return the lines at which code makes calls that are not in the source text.

    Dynamo's code has the lines of its original. What it adds, such as the call of compiled code,
    has the line before it, but no columns. Calls that hand over to a resume function, known by its
    name if ``knows_resumed``, do not count: that one stands for this code.

    Source: ``torch/_dynamo/bytecode_transformation.py``, ``linetable_311_writer``;
    ``resume_execution.py``.
    """
    if all(line is None or column is not None for line, _, column, _ in code.co_positions()):
        return frozenset()
    own = _before_resume(code) if knows_resumed else dis.get_instructions(code)
    calls = (each for each in own if each.opname in _CALLS)
    places = (each.positions for each in calls if each.positions is not None)
    return frozenset(p.lineno for p in places if p.lineno and p.col_offset is None)


def _before_resume(code: CodeType) -> Iterator[dis.Instruction]:
    """Leave out the instructions from a resume function's name to the return."""
    is_resuming = False
    for each in dis.get_instructions(code):
        is_resuming = is_resuming or _is_of_resumed(each)
        if not is_resuming:
            yield each
        is_resuming = is_resuming and each.opname != _RETURN


def _is_of_resumed(each: dis.Instruction) -> bool:
    """Tell whether an instruction loads a resume function, or its code before torch 2.13."""
    if isinstance(each.argval, CodeType):
        return resumes(each.argval)
    return each.opname == _GLOBAL and each.argval.startswith(_RESUMED)


def has_columns() -> bool:
    """Tell whether this Python keeps the columns of source text, as by default."""
    return all(column is not None for _, _, column, _ in compile("f()", "", "eval").co_positions())


class ProgramCode:
    """Tells the program's code from other code.

    Other code is torch's, the standard library's, that of tools torch calls, and Hugging Face
    configurations. Watching it would add no line of the model, and flood the log while torch
    compiles.
    """

    def __init__(self, foreign: Iterable[str]) -> None:
        self._foreign = tuple(folder.rstrip(os.sep) + os.sep for folder in foreign)
        self._library = sysconfig.get_path("stdlib") + os.sep

    @staticmethod
    def recomputes(code: CodeType) -> bool:
        """Tell whether code of torch runs a forward again for a backward.

        Source: ``torch/utils/checkpoint.py``, ``recompute_fn`` and ``CheckpointFunction.backward``.
        """
        return code.co_filename.endswith(_CHECKPOINT) and code.co_name in _RECOMPUTING

    def holds(self, file: str, module: str) -> bool:
        """Tell whether code is the program's; generated code has torch's module name."""
        parts = module.split(".")
        is_configuration = parts[0] == _CONFIGURED and parts[-1].startswith(_CONFIGURATION)
        if is_configuration or parts[0] in _PACKAGES:
            return False
        if file.startswith("<"):
            return cell_number(file) is not None
        path = absolute(file)
        return not path.startswith(self._foreign) and not self._is_of_library(path)

    def _is_of_library(self, path: str) -> bool:
        below = path.removeprefix(self._library)
        return below != path and not below.startswith(("site-packages", "dist-packages"))
