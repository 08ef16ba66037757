"""Logs a session to Weights & Biases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from profiler_ext.errors import UsageError
from profiler_ext.exporters.extras import WANDB

WANDB.require("profiler_ext.integrations.wandb")

import wandb  # noqa: E402

from profiler_ext.integrations import ARTIFACTS, TABLES, figures  # noqa: E402  # noqa: E402
from profiler_ext.sessions.session import Session  # noqa: E402


def log_session(session: Session, folder: str | Path, run: Any = None) -> Any:
    """Log the files as an artifact, the breakdown and the findings as tables, and the report.

    Raises:
        UsageError: No run was begun.
    """
    run = run or wandb.run
    if run is None:
        raise UsageError("no W&B run was begun: call wandb.init() first, or give run=")
    tables = {f"{ARTIFACTS}/{name}": _table(session, name) for name in TABLES}
    report = Path(folder) / "report.html"
    pages = [wandb.Html(str(report), inject=False)] if report.is_file() else []
    run.log({**figures(session), **tables, **{f"{ARTIFACTS}/report": page for page in pages}})
    artifact = wandb.Artifact(f"{ARTIFACTS}-{run.id}", type="profile")
    artifact.add_dir(str(folder))
    run.log_artifact(artifact)
    return artifact


def _table(session: Session, name: str) -> Any:
    frame = session.table(name)
    return wandb.Table(dataframe=frame.astype(object).where(frame.notna(), None))
