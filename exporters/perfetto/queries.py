"""Owns the offer of ready-made SQL for traces that ``export_perfetto`` wrote."""

from __future__ import annotations

from importlib.resources import files


def queries() -> str:
    """Return the SQL that makes the tables and views which docs/perfetto.md describes.

    Run it once in a trace processor (or paste it into the viewer's query page), then select
    from ``launch``, ``launch_share``, ``place``, ``time_by_line``, ``time_by_module``,
    ``time_by_phase``, ``time_by_kernel``, ``idle_by_cause`` and ``roofline``.
    """
    return files(__name__.rpartition(".")[0]).joinpath("queries.sql").read_text(encoding="utf-8")
