"""Owns how the code of a compiled kernel is found in Inductor's generated module."""

from __future__ import annotations

import ast


def kernel_sources(module_text: str) -> dict[str, str]:
    """Return kernel name to its source, as the generated module hands it to ``async_compile``.

    Args:
        module_text: text of Inductor's output module.

    Returns:
        The kernels in order; nothing where the text is no Python.
    """
    try:
        tree = ast.parse(module_text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    kernels = (_kernel(node) for node in ast.walk(tree) if isinstance(node, ast.Assign))
    return dict(pair for pair in kernels if pair is not None)


def _kernel(node: ast.Assign) -> tuple[str, str] | None:
    """Read ``name = async_compile.triton('name', 'code', ...)`` and its like."""
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(func=ast.Attribute(value=ast.Name(id="async_compile")), args=arguments),
        ):
            texts = [each.value for each in arguments if isinstance(each, ast.Constant)]
            code = [text for text in texts if isinstance(text, str) and "\n" in text]
            return (name, code[-1].strip("\n")) if code else None
    return None
