"""The lineage of a node that tests of lineage write by hand."""

from __future__ import annotations

from typing import Any

from profiler_ext.records.evidence import Mechanism
from profiler_ext.records.lineage import Frame, Lineage


def line(name: str, **snapshot: Any) -> Lineage:
    """Return the lineage of a node on a line of its own."""
    stack = (Frame("/src/model.py", 1, name, f"{name}()"),)
    return Lineage(stack=stack, mechanism=Mechanism.OWN, **snapshot)
