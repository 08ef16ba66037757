"""The reading of a generated module: the code of each kernel that it defines."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_DEFINERS = frozenset({"triton", "cpp_pybinding", "cpp", "halide", "multi_kernel"})
_CPP_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PYTHON_COMMENT = re.compile(r"#[^\n]*")


def kernel_codes(module: str) -> dict[str, str]:
    """Return the code of each kernel of an output module, without comments, by name.

    Args:
        module: path of Inductor's output module.
    """
    tree = ast.parse(Path(module).read_text())
    found = {}
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            code = _definition(statement.value)
            if code is not None:
                found[statement.targets[0].id] = code
    return found


def _definition(value: ast.expr) -> str | None:
    """The code in ``async_compile.triton('name', '''code''')`` and its kin."""
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)):
        return None
    if value.func.attr not in _DEFINERS:
        return None
    texts = [a.value for a in value.args if isinstance(a, ast.Constant)]
    code = max((text for text in texts if isinstance(text, str)), key=len, default=None)
    comment = _PYTHON_COMMENT if value.func.attr == "triton" else _CPP_COMMENT
    return None if code is None else comment.sub("", code)
