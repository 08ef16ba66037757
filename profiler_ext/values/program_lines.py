"""The line of the program that runs an op, or that ran the forward op of what autograd runs.

Autograd makes a node just before it runs the forward's kernels, so that the first op that runs with
a number is the node's. Numbers are each thread's own: what a checkpoint's recomputation makes on a
thread of the backward is kept apart (``torch/csrc/autograd/VariableTypeUtils.h``,
``aten/src/ATen/SequenceNumber.h``).
"""

from __future__ import annotations

import re
import sys
from enum import Enum, auto
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from profiler_ext.python_lines.program_code import ProgramCode
from profiler_ext.records.recording import cell_named
from profiler_ext.records.values import ProgramLine
from profiler_ext.source_paths import absolute, cell_number, torch_folders
from profiler_ext.torch_compat.names import running_names

_OWN = absolute(str(Path(__file__).parents[1]))
_ENGINE = "_engine_run_backward"  # ``torch/autograd/graph.py``: frames around it only call it
_OF_NODE = re.compile(r"(?P<op>\w+?)Backward\d*$")
_NOT_OF_NAME = re.compile(r"[^a-z0-9]")


class _Code(Enum):
    PROGRAM = auto()
    RECOMPUTES = auto()
    ENGINE = auto()
    OTHER = auto()


class Origin(NamedTuple):
    """Where an op comes from."""

    line: ProgramLine | None
    is_backward: bool = False
    is_recomputed: bool = False


class ProgramLines:
    """The lines of ops, and the nodes of autograd that they have."""

    def __init__(self) -> None:
        self._program = ProgramCode((*torch_folders(), _OWN))
        self._kinds: dict[CodeType, _Code] = {}
        self._made: dict[int, tuple[str, ProgramLine]] = {}  # by the number of the node
        self._recomputed: dict[int, tuple[str, ProgramLine]] = {}

    def origin(self, op: str) -> Origin:
        """Return where the op that runs now comes from."""
        is_behind = running_names.CURRENT_NODE.get()() is not None
        line, is_recomputed = self._line(sys._getframe(1), is_behind)
        if line is None:
            return Origin(None, is_backward=is_behind)
        if not is_behind or is_recomputed:
            made = self._recomputed if is_behind else self._made
            made.setdefault(running_names.LAST_SEQUENCE_NR.get()() - 1, (op, line))
        return Origin(line, is_behind and not is_recomputed, is_recomputed)

    def of_node(self, node: Any) -> ProgramLine | None:
        """Return the line of the forward op that a node differentiates; ask once for each."""
        number, name = running_names.NODE_SEQUENCE_NR.of(node)(), node.name()
        for made in (self._recomputed, self._made):
            op, line = made.get(number, ("", None))
            if line is not None and _is_node_of(name, op):
                if made is self._recomputed:
                    del made[number]  # the next recomputation may use the number again
                return line
        return None

    def _line(self, frame: FrameType | None, is_behind: bool) -> tuple[ProgramLine | None, bool]:
        """Return the innermost line of the program, and whether a checkpoint runs it again."""
        line: ProgramLine | None = None
        while frame is not None:
            kind = self._kind(frame)
            if kind is _Code.ENGINE:
                break
            if kind is _Code.RECOMPUTES:
                return line, True
            if kind is _Code.PROGRAM and line is None:
                line = _line_of(frame)
                if not is_behind:
                    break
            frame = frame.f_back
        return line, False

    def _kind(self, frame: FrameType) -> _Code:
        code = frame.f_code
        if (kind := self._kinds.get(code)) is None:
            module = str(frame.f_globals.get("__name__"))
            kind = _Code.OTHER
            if self._program.holds(code.co_filename, module):
                kind = _Code.PROGRAM
            elif code.co_name == _ENGINE:
                kind = _Code.ENGINE
            elif self._program.recomputes(code):
                kind = _Code.RECOMPUTES
            self._kinds[code] = kind
        return kind


def _line_of(frame: FrameType) -> ProgramLine:
    file, number = frame.f_code.co_filename, cell_number(frame.f_code.co_filename)
    name = absolute(file) if number is None else cell_named(number)
    return ProgramLine(name, frame.f_lineno, frame.f_code.co_qualname)


def _is_node_of(name: str, op: str) -> bool:
    """Tell whether a node is of an op: ``NllLossBackward0`` of ``aten::nll_loss_forward``."""
    match = _OF_NODE.match(name)
    if match is None:
        return True  # a function of the program's, whose forward runs any ops
    of_node = match["op"].lower()
    of_op = _NOT_OF_NAME.sub("", op.rpartition("::")[2])
    return of_op.startswith(of_node) or of_node.startswith(of_op)
