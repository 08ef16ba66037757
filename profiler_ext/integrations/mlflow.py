"""Logs a session to MLflow."""

from __future__ import annotations

from pathlib import Path

from profiler_ext.errors import UsageError
from profiler_ext.exporters.extras import MLFLOW

MLFLOW.require("profiler_ext.integrations.mlflow")

import mlflow  # noqa: E402

from profiler_ext.integrations import ARTIFACTS, TABLES, figures  # noqa: E402  # noqa: E402
from profiler_ext.sessions.session import Session  # noqa: E402


def log_session(session: Session, folder: str | Path, run_id: str | None = None) -> None:
    """Log the files as artifacts, the breakdown and the findings as tables, and the figures.

    Raises:
        UsageError: No run is active.
    """
    active = mlflow.active_run()
    if run_id is None and active is None:
        raise UsageError("no MLflow run is active: call mlflow.start_run() first, or give run_id=")
    run_id = run_id or active.info.run_id
    mlflow.log_metrics(figures(session), run_id=run_id)
    mlflow.log_artifacts(str(folder), artifact_path=ARTIFACTS, run_id=run_id)
    for name in TABLES:
        frame = session.table(name)
        plain = frame.astype(object).where(frame.notna(), None)
        mlflow.log_table(plain, f"{ARTIFACTS}/{name}.json", run_id=run_id)
