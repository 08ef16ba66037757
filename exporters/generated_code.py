"""Owns the code that Inductor generated: where its modules are found, and a kernel's code in one.

A session keeps the modules of its graphs; of one that does not, they are read from Inductor's cache
where that is on this machine, under the roots of the user who reads.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from profiler_ext.exporters.sources import read_texts
from profiler_ext.records import Analysis, GapReason, Recording


def recorded_modules(recording: Recording) -> dict[str, str]:
    """Return the text of the generated modules that a session keeps, by their paths.

    Args:
        recording: what was recorded.

    Returns:
        Path to text; nothing in a Python that cannot unpack it.
    """
    with suppress(ImportError):
        return {path: module.text for module in recording.generated for path in module.paths}
    return {}


def module_texts(analysis: Analysis, roots: Iterable[str | Path] = ()) -> dict[str, str]:
    """Return the text of the generated modules of an analysis, by the path that a graph names.

    Args:
        analysis: whose graphs.
        roots: folders from which source may be shown, for what the session does not keep.

    Returns:
        Path to text, without what is neither kept nor here; nothing where the user asked that no
        text of source be kept.
    """
    recording = analysis.recording
    if any(gap.reason == GapReason.SOURCE_OFF for gap in recording.gaps):
        return {}
    kept = recorded_modules(recording)
    named = dict.fromkeys(filter(None, (graph.output_module for graph in recording.graphs)))
    elsewhere = [path for path in named if path not in kept]
    return read_texts(elsewhere, recording.settings, roots) | kept


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
