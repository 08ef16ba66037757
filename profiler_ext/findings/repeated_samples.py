"""What the text of a function says of samples that it repeats, and of what it calls with these.

A network treats each sample of a batch by itself, so that of repeated samples it computes what it
has: ``f(x.repeat_interleave(n, 0))`` is ``f(x).repeat_interleave(n, 0)``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

_JOINS = frozenset({"cat", "concat", "concatenate"})
_LIBRARIES = frozenset({"torch", "F", "np", "math"})


@dataclass(frozen=True, slots=True)
class RepeatedSamples:
    """How often samples are repeated, at which line, and what is called with them."""

    times: int | None  # ``None`` where the text does not tell
    line: int
    callee: str = ""


def calls_of_repeated(codes: Mapping[int, str]) -> dict[int, RepeatedSamples]:
    """Return the lines that only call something with repeated samples, and with nothing else."""
    known: dict[str, RepeatedSamples] = {}
    calls: dict[int, RepeatedSamples] = {}
    for line in sorted(codes):
        try:
            (statement,) = ast.parse(codes[line].strip()).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            known = {}  # it may assign anything
            continue
        value = getattr(statement, "value", None)
        called = _of_call(value, known, line)
        if called is not None:
            calls[line] = called
        found = _repeated(value, known, line)
        for name in _assigned(statement):
            known.pop(name, None)
        if isinstance(statement, ast.Assign) and found is not None:
            known |= {each.id: found for each in statement.targets if isinstance(each, ast.Name)}
    return calls


def _assigned(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement assigns, or changes in place."""
    for each in ast.walk(statement):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id
        target: ast.AST | None = each.target if isinstance(each, ast.AugAssign) else None
        if isinstance(each, ast.Attribute) and each.attr.endswith("_"):
            target = each.value
        if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Store):
            target = each.value
        if isinstance(target, ast.Name):
            yield target.id


def _of_call(
    call: ast.AST | None, known: Mapping[str, RepeatedSamples], line: int
) -> RepeatedSamples | None:
    """Return what samples a call is given, where it is given nothing else."""
    while isinstance(call, ast.Attribute | ast.Subscript):  # of what it returns
        call = call.value
    if not isinstance(call, ast.Call) or _is_of_library(call.func):
        return None
    given = [*call.args, *(each.value for each in call.keywords)]
    tensors = [each for each in given if not isinstance(each, ast.Constant)]
    found = [_repeated(each, known, line) for each in tensors]
    if not found or found[0] is None or any(each != found[0] for each in found):
        return None
    return replace(found[0], callee=ast.unparse(call.func))


def _is_of_library(called: ast.expr) -> bool:
    while isinstance(called, ast.Attribute):
        called = called.value
    return not isinstance(called, ast.Name) or called.id in _LIBRARIES


def _repeated(
    value: ast.AST | None, known: Mapping[str, RepeatedSamples], line: int
) -> RepeatedSamples | None:
    """Return how an expression's samples are repeated, if they are."""
    if isinstance(value, ast.Name):
        return known.get(value.id)
    return _repeats(value, line) if isinstance(value, ast.Call) else None


def _repeats(call: ast.Call, line: int) -> RepeatedSamples | None:
    """Return how often a call repeats each sample of a tensor, along the first dimension."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    is_function = isinstance(call.func, ast.Attribute) and _is_of_torch(call.func.value)
    arguments = call.args[1:] if is_function else call.args
    if name == "repeat_interleave" and len(arguments) in (1, 2):
        dims = [*arguments[1:], *(each.value for each in call.keywords if each.arg == "dim")]
        is_of_samples = [ast.unparse(each) for each in dims] == ["0"]
        return RepeatedSamples(_number(arguments[0]), line) if is_of_samples else None
    if name == "repeat" and len(arguments) > 1 and not call.keywords:
        times, *others = map(_number, arguments)
        return RepeatedSamples(times, line) if times != 1 and set(others) == {1} else None
    if name in _JOINS and is_function and len(call.args) == 1 and not call.keywords:
        return _joined(call.args[0], line)
    return None


def _is_of_torch(root: ast.expr) -> bool:
    return isinstance(root, ast.Name) and root.id == "torch"


def _joined(parts: ast.expr, line: int) -> RepeatedSamples | None:
    """Return how often a list has one and the same tensor: ``[x, x]``, ``[x] * 2``."""
    if isinstance(parts, ast.List | ast.Tuple) and len(parts.elts) > 1:
        is_same = len({ast.unparse(each) for each in parts.elts}) == 1
        is_same &= all(isinstance(each, ast.Name) for each in parts.elts)
        return RepeatedSamples(len(parts.elts), line) if is_same else None
    if isinstance(parts, ast.BinOp) and isinstance(parts.op, ast.Mult):
        is_one = isinstance(parts.left, ast.List) and len(parts.left.elts) == 1
        return RepeatedSamples(_number(parts.right), line) if is_one else None
    return None


def _number(node: ast.expr) -> int | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) else None
