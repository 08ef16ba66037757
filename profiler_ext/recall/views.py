"""Owns which ATen ops only look at memory."""

from __future__ import annotations

_VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "view",
        "_unsafe_view",
        "reshape",
        "permute",
        "t",
        "transpose",
        "expand",
        "squeeze",
        "unsqueeze",
        "slice",
        "select",
        "alias",
        "detach",
        "as_strided",
        "unfold",
        "split",
        "split_with_sizes",
        "diagonal",
    )
)


def is_view_op(name: str) -> bool:
    """Tell whether an op computes nothing of its own.

    Args:
        name: the op as FX spells it, with its overload: ``aten.view.default``.
    """
    return ".".join(name.split(".")[:2]) in _VIEWS
