"""Owns which code is the program's: what its lines are watched for.

The program is what is neither torch's nor the standard library's nor a tool's that torch itself
calls. To watch those would name no line of the model, and flood the log while torch compiles.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import CodeType

from profiler_ext.files.paths import absolute

_PACKAGES = frozenset(
    {
        *("torch", "torchgen", "functorch", "triton", "profiler_ext"),
        "rich",  # `profiler-ext run` shows with it how far a run is
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

_CHECKPOINT = str(Path("torch", "utils", "checkpoint.py"))
_RECOMPUTING = frozenset({"recompute_fn", "backward"})


class ProgramCode:
    """Tells the program's code from that of torch and the standard library."""

    def __init__(self, foreign: Iterable[str]) -> None:
        """Take folders whose code is not the program's, wherever it lies."""
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
            file: the file that its code object names.
            module: the name of the module whose globals it has; generated code has torch's.
        """
        if file.startswith("<") or module.partition(".")[0] in _PACKAGES:
            return False
        path = absolute(file)
        return not path.startswith(self._foreign) and not self._is_of_library(path)

    def _is_of_library(self, path: str) -> bool:
        below = path.removeprefix(self._library)
        return below != path and not below.startswith(("site-packages", "dist-packages"))
