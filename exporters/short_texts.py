"""Owns how names are cut to a width, so that what tells them apart stays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
_CUTLASS = re.compile(r"cutlass::(?:Kernel\d*|device_kernel)<(?:cutlass::)?(\w+)")
_NAMESPACES = re.compile(
    r"\b(?:at::native|at::cuda|c10|cub|thrust|cublasLt|detail)::|\(anonymous namespace\)::"
)
_ENDS = re.compile(r"(?:_execute\w*_kernel)?_{1,2}5x_cublas$")
_PREFIXES = ("extern_kernels.", "torch.ops.aten.", "torch.ops.", "aten.")


def middle(text: str, width: int) -> str:
    """Return a name that has its beginning and its end: ``triton_poi_…_view_5``.

    Args:
        text: the name.
        width: so many letters at most.
    """
    if len(text) <= width:
        return text
    after = (width - 1) // 2
    return text[: max(width - 1 - after, 0)] + _ELLIPSIS + text[len(text) - after :]


def path_end(text: str, width: int) -> str:
    """Return the end of a path, which tells more than its start; of a remark its start.

    Args:
        text: the path, or a remark in brackets.
        width: so many letters at most.
    """
    if len(text) <= width or text.startswith("("):
        return start(text, width)
    return _ELLIPSIS + text[len(text) - width + 1 :]


def start(text: str, width: int) -> str:
    """Return the start of a line of code.

    Args:
        text: the line.
        width: so many letters at most.
    """
    return text if len(text) <= width else text[: max(width - 1, 0)] + _ELLIPSIS


def short_kernel(name: str) -> str:
    """Return a kernel's name without its result, its parameters and the namespaces of torch.

    Args:
        name: as the device has it: ``void cutlass::Kernel2<cutlass_80_...>(...)``.
    """
    if (found := _CUTLASS.search(name)) is not None:
        return found[1]
    plain = _ENDS.sub("", _NAMESPACES.sub("", name.removeprefix("void ")))
    return plain[: _parameters(plain)].rstrip() or name


def kernel_text(row: Mapping[str, Any]) -> str:
    """Return what a kernel is called: of a library's call also what the device ran.

    Args:
        row: of a table with ``kernel`` and ``name``.
    """
    kernel, own = row["kernel"], row["name"]
    if own is None or own == kernel:
        return short_kernel(kernel)
    if own.endswith(kernel) or kernel.startswith(("triton_", "cpp_")):
        return str(kernel)
    prefix = next((each for each in _PREFIXES if kernel.startswith(each)), "")
    return f"{kernel.removeprefix(prefix)}: {short_kernel(own)}"


def _parameters(name: str) -> int:
    """Return where the parameters begin: a bracket after a name, outside of a template's."""
    depth = 0
    for at, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and not name[:at].endswith(" "):
            return at
    return len(name)
