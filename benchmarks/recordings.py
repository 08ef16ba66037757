"""The recordings of H200s that are measured with, and the folder where long ones are made."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
_RECORDED = ROOT / "tests" / "fixtures" / "h200"
LAYERS = _RECORDED / "cases" / "repeated_layers.session.pt.trace.json.gz"
"""Two compiled steps of a model of equal layers: 1,160 launches, 8,238 events."""
GPT = _RECORDED / "findings" / "tuned_gpt.session.pt.trace.json.gz"
"""Five steps of a tuned GPT, its lines watched."""
FSDP = _RECORDED / "cases" / "fsdp2.rank_1.session.pt.trace.json.gz"
"""Two steps of a rank of FSDP2."""

MASKS = _RECORDED / "cases" / "flex_masks.session.pt.trace.json.gz"
"""A small session: 18 kB."""
EAGER, COMPILED, EDITED = (
    _RECORDED / "worked" / f"gpt_{name}.session.pt.trace.json.gz"
    for name in ("eager", "compiled", "edited")
)
"""The GPT of the book: as it is, compiled, and compiled with a change; the largest sessions."""


@contextmanager
def folder() -> Iterator[Path]:
    """Make a folder for long recordings, and take it away; below ``$TMPDIR`` if that is set."""
    with tempfile.TemporaryDirectory(prefix="bench_") as made:
        yield Path(made)


def environment(tree: Path = ROOT) -> dict[str, str]:
    """Return what a process needs to import the package of a checkout, and to keep it compiled.

    Args:
        tree: the checkout.
    """
    return {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": ""}
