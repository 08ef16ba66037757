"""Which code is the program's, and which of its lines are: what it is watched for.

The program is what is neither torch's nor the standard library's nor a tool's that torch itself
calls, nor a configuration of Hugging Face's. To watch those would name no line of the model, and
flood the log while torch compiles.
"""

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
        "rich",  # `profiler-ext run` shows with it how far a run is
        *("IPython", "ipykernel", "traitlets", "tornado", "zmq"),  # they run a notebook's cells
        *(
            "numpy",
            "sympy",
            "mpmath",
            "networkx",
            "jinja2",
            "filelock",
            "typing_extensions",
        ),  # Inductor calls them
    }
)

_CONFIGURED, _CONFIGURATION = "transformers", "configuration_"
"""Attributes of its configurations are Python's: Dynamo's guards of a compiled model ask for some
forty at each call, 280 lines of them, and a configuration runs no operators.

Source: ``transformers/configuration_utils.py``, ``PreTrainedConfig.__getattribute__``.
"""

_CHECKPOINT = str(Path("torch", "utils", "checkpoint.py"))
_RECOMPUTING = frozenset({"recompute_fn", "backward"})
_CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})
_RETURN, _GLOBAL = "RETURN_VALUE", "LOAD_GLOBAL"
_RESUMED, _RESUMED_CODE = "__resume_at", "torch_dynamo_resume_in_"
"""Were they called otherwise, more lines would be borrowed, and none the wrong one."""


def resumes(code: CodeType) -> bool:
    """Tell whether Dynamo made code that goes on after a graph break, in the stead of its caller.

    Source: ``torch/_dynamo/resume_execution.py``, ``TORCH_DYNAMO_RESUME_IN_PREFIX``.
    """
    return code.co_name.startswith(_RESUMED_CODE)


def borrowed_lines(code: CodeType, knows_resumed: bool) -> frozenset[int]:
    """Return the lines at which code makes calls that no text of these lines asks for.

    Dynamo's code has the lines of the function that it stands for. What it adds, as the call of
    what was compiled, has the line of what comes before it, and unlike source text no columns.
    The calls with which it hands over to the code that resumes after a graph break are left out,
    if that is known by its name: then it stands for this code. Of a closure one makes the function
    that goes on, and one calls it.

    Args:
        knows_resumed: this torch gives code that resumes the name by which it is known.

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
    """Leave out what stands from the name of code that resumes to the return."""
    is_resuming = False
    for each in dis.get_instructions(code):
        is_resuming = is_resuming or _is_of_resumed(each)
        if not is_resuming:
            yield each
        is_resuming = is_resuming and each.opname != _RETURN


def _is_of_resumed(each: dis.Instruction) -> bool:
    """Tell whether an instruction loads what resumes; before torch 2.13 a closure's is its code."""
    if isinstance(each.argval, CodeType):
        return resumes(each.argval)
    return each.opname == _GLOBAL and each.argval.startswith(_RESUMED)


def has_columns() -> bool:
    """Tell whether this Python notes the columns of source text, as it does unless told not to."""
    return all(column is not None for _, _, column, _ in compile("f()", "", "eval").co_positions())


class ProgramCode:
    """Tells the program's code from that of torch and the standard library."""

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
        """Tell whether code is the program's.

        Args:
            module: the name of the module whose globals it has; generated code has torch's.
        """
        parts = module.split(".")
        if parts[0] in _PACKAGES or (
            parts[0] == _CONFIGURED and parts[-1].startswith(_CONFIGURATION)
        ):
            return False
        if file.startswith("<"):
            return cell_number(file) is not None
        path = absolute(file)
        return not path.startswith(self._foreign) and not self._is_of_library(path)

    def _is_of_library(self, path: str) -> bool:
        below = path.removeprefix(self._library)
        return below != path and not below.startswith(("site-packages", "dist-packages"))
