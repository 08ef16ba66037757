"""Which lines make matrices of which only the diagonal is read, by the text.

They multiply matrices, or compute a whole Hessian.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

_PRODUCTS = frozenset({"bmm", "mm", "matmul"})
_DIAGONALS = frozenset({"diagonal", "diag", "trace"})


_JACOBIANS = frozenset({"jacrev", "jacfwd"})
_HESSIAN = "hessian"
_IN_FUNCTIONAL = 2  # torch.autograd.functional.hessian(f, x): the value, not a function of it


def diagonals_of(codes: Mapping[int, str]) -> dict[int, set[int]]:
    """Return the lines of such products, each with those that read its diagonal.

    The lines are those that ran of one function. Each read of the product is of its diagonal.
    """
    return _read_by_diagonals(codes, _is_product)


def hessians_of(codes: Mapping[int, str]) -> dict[int, set[int]]:
    """Return the lines of Hessians, each with those that read its diagonal, and nothing else."""
    return _read_by_diagonals(codes, _is_hessian)


def _read_by_diagonals(
    codes: Mapping[int, str], is_made: Callable[[ast.expr], bool]
) -> dict[int, set[int]]:
    lines: dict[int, set[int]] = {}
    made: dict[str, int] = {}  # the line of a product that has a name
    whole: set[int] = set()  # lines of products that are read otherwise, too
    for line in sorted(codes):
        try:
            statement = ast.parse(codes[line].strip()).body[0]
        except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
            names = {name for name in made if name in codes[line]}
            whole |= {made[name] for name in names}
            continue
        read = [each for node in ast.walk(statement) if (each := _read_diagonal(node)) is not None]
        if any(map(is_made, read)):
            lines.setdefault(line, set()).add(line)
        of_diagonals = [each for each in read if isinstance(each, ast.Name)]
        for name in _names(statement, ast.Load):
            if name.id in made and not any(name is each for each in of_diagonals):
                whole.add(made[name.id])
            elif name.id in made:
                lines.setdefault(made[name.id], set()).add(line)
        for name in _names(statement, ast.Store):
            made.pop(name.id, None)
        if isinstance(statement, ast.Assign) and is_made(statement.value):
            made |= {each.id: line for each in statement.targets if isinstance(each, ast.Name)}
    return {line: readers for line, readers in lines.items() if line not in whole}


def _names(statement: ast.stmt, kind: type[ast.expr_context]) -> Iterator[ast.Name]:
    nodes = ast.walk(statement)
    return (each for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, kind))


def _is_product(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    return isinstance(node, ast.Call) and _callee(node) in _PRODUCTS


def _is_hessian(node: ast.expr) -> bool:
    """Tell whether it calls a Hessian, for each of many points with ``vmap``."""
    if not isinstance(node, ast.Call):
        return False
    own = node.func
    if isinstance(own, ast.Call) and _callee(own) == "vmap" and own.args:
        own = own.args[0]
    is_value = _callee(node) == _HESSIAN and len(node.args) >= _IN_FUNCTIONAL
    return is_value or (isinstance(own, ast.Call) and _differentiates_twice(own))


def _differentiates_twice(call: ast.Call) -> bool:
    inner = next(iter(call.args), None)
    is_inner = isinstance(inner, ast.Call) and _callee(inner) in _JACOBIANS
    return _callee(call) == _HESSIAN or (_callee(call) in _JACOBIANS and is_inner)


def _read_diagonal(node: ast.AST) -> ast.expr | None:
    """Return what a node reads the diagonal of, if it does: ``x.diagonal()``, ``x[:, i, i]``."""
    if isinstance(node, ast.Call) and _callee(node) in _DIAGONALS:
        root = node.func.value if isinstance(node.func, ast.Attribute) else None
        is_method = not isinstance(root, ast.Name) or root.id != "torch"
        return root if is_method else next(iter(node.args), None)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        last = node.slice.elts[-2:]
        if len(last) > 1 and all(isinstance(each, ast.Name) for each in last):
            return node.value if ast.unparse(last[0]) == ast.unparse(last[1]) else None
    return None


def _callee(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]
