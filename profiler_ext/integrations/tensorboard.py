"""Logs a session through TensorBoard's ``SummaryWriter``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from profiler_ext.exporters.tables.files import markdown_text
from profiler_ext.integrations import ARTIFACTS, TABLES, figures
from profiler_ext.sessions.session import Session


def log_session(session: Session, folder: str | Path, writer: Any, step: int = 0) -> None:
    """Log the figures, the breakdown and the findings, and the session for the plugin's tab."""
    for name, figure in figures(session).items():
        writer.add_scalar(name, figure, step)
    for name in TABLES:
        writer.add_text(f"{ARTIFACTS}/{name}", markdown_text(session.columns(name)), step)
    writer.add_text(f"{ARTIFACTS}/files", f"`{Path(folder)}`", step)
    writer.flush()
    session.export(writer.log_dir)
