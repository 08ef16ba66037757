"""How many steps the loops around a step have, where the program says so."""

from __future__ import annotations

import argparse
import ast
import dis
import linecache
import sys
from math import prod
from types import CodeType, FrameType
from typing import Any

_SAME_LENGTH = {"enumerate", "list", "reversed", "sorted", "tqdm", "track"}
"""Calls that yield as many items as their first argument has."""
_NOT_THE_PROGRAM = {"torch", __name__.partition(".")[0]}
_SIZED = (dict, list, range, set, tuple)


def expected_steps() -> int | None:
    """Return how often the running loops of the program come here at most, all together.

    ``None`` if that depends on more than ``range``, a built-in container or a data loader. A step
    within no loop counts once.
    """
    counts: list[int | None] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _NOT_THE_PROGRAM:
            counts += [_length(each, frame) for each in _loops(code, frame.f_lasti)]
        if code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            break
        frame = frame.f_back
    known = [each for each in counts if each is not None]
    return prod(known) if len(known) == len(counts) else None


def _loops(code: CodeType, at: int) -> list[ast.expr | None]:
    """Return what is iterated by each loop that encloses an instruction, ``None`` for a ``while``.

    A loop is a jump back: where the source is gone, it is still seen.
    """
    instructions = [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]
    ends: dict[int, int] = {}
    for each in instructions:
        if "BACKWARD" in each.opname and each.argval <= at <= each.offset:
            first = next(head for head in instructions if head.offset >= each.argval)
            ends[first.offset] = each.offset
    heads = [each for each in instructions if each.offset in ends]
    return [_iterated(code, each) if each.opname == "FOR_ITER" else None for each in heads]


def _iterated(code: CodeType, head: dis.Instruction) -> ast.expr | None:
    """Return the expression behind ``in``.

    The place of the instruction is the whole statement until Python 3.12, then the expression.
    """
    place = head.positions
    if place is None or place.lineno is None or place.end_lineno is None:
        return None
    lines = [line.encode() for line in linecache.getlines(code.co_filename)]
    chosen = lines[place.lineno - 1 : place.end_lineno]
    if not chosen:
        return None
    chosen[-1] = chosen[-1][: place.end_col_offset]
    before, chosen[0] = chosen[0][: place.col_offset], chosen[0][place.col_offset :]
    indent = before if before.isspace() else b" "
    try:
        body = ast.parse((b"if True:\n" + indent + b"".join(chosen)).decode()).body
    except (SyntaxError, ValueError):  # the file has changed since
        return None
    statement = body[0].body[0] if isinstance(body[0], ast.If) else None
    if isinstance(statement, ast.For):
        return statement.iter
    return statement.value if isinstance(statement, ast.Expr) else None


def _length(node: ast.expr | None, frame: FrameType) -> int | None:
    if isinstance(node, ast.Call) and node.args:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in ("range", "trange"):
            limits = [_value(each, frame) for each in node.args]
            is_known = all(type(each) is int for each in limits) and len(limits) <= 3
            return len(range(*limits)) if is_known and 0 not in limits[2:] else None
        return _length(node.args[0], frame) if name in _SAME_LENGTH else None
    value: Any = None if node is None else _value(node, frame)
    return len(value) if type(value) in _SIZED or _is_data_loader(value) else None


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Return the value of a number, a name, or an option of the command line."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        options = _value(node.value, frame)
        return vars(options).get(node.attr) if type(options) is argparse.Namespace else None
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "len" and node.args:
        return _length(node.args[0], frame)
    return None


def _is_data_loader(value: object) -> bool:
    """Whether it is torch's own data loader, of a data set that has a length."""
    loader = getattr(sys.modules.get("torch.utils.data"), "DataLoader", None)
    return type(value) is loader and hasattr(type(getattr(value, "dataset", None)), "__len__")
