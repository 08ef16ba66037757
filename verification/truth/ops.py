"""What is compared: an op of a program, or a node of a graph, and the place it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Size = tuple[int, ...]


class Place(NamedTuple):
    """A line of the user's, and the module whose ``forward`` it ran in; ``""`` is the model."""

    file: str
    line: int
    module: str

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line} in {self.module or 'the model'}"


@dataclass(frozen=True, slots=True)
class Op:
    """An ATen op that ran, or that a graph's node claims to be.

    Attributes:
        name: without namespace, overload and the ``_`` of one that mutates.
        is_backward: whether it differentiates.
        outputs: size and type of each tensor that it yields.
        place: where it comes from; ``None`` where that is not known.
    """

    name: str
    is_backward: bool
    outputs: tuple[tuple[Size, str], ...]
    place: Place | None


def plain_name(qualified: str) -> str:
    """Return the plain name of ``aten.add_.Tensor`` or ``aten::add_``."""
    parts = qualified.replace("::", ".").split(".")
    return parts[min(1, len(parts) - 1)].rstrip("_")
