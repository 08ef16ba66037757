"""Sessions in W&B, MLflow and TensorBoard, read back by their own readers."""

from __future__ import annotations

import gzip
import importlib
import math
import re
import sys
import warnings
from pathlib import Path

import msgspec
import pytest

from profiler_ext.errors import MissingExtraError, UsageError
from profiler_ext.exporters.extras import HUGGINGFACE, LIGHTNING, MLFLOW, WANDB, Extra
from profiler_ext.integrations import figures, tensorboard
from profiler_ext.sessions.output import write_outputs
from profiler_ext.sessions.session import Session, load
from tests.attribution.recordings import FIXTURES

FIGURES = {
    "profiler_ext/compiled/line_ms": 0.1143195,
    "profiler_ext/eager/op_ms": 0.000672,
    "profiler_ext/idle/idle_ms": 8.7556775,
    "profiler_ext/step_ms": 8.870669,
}
"""The breakdown of the recording: milliseconds a step."""


@pytest.fixture(scope="module")
def session() -> Session:
    return load(FIXTURES / "cases" / "cnn.session.pt.trace.json.gz")


@pytest.fixture(scope="module")
def folder(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run writes."""
    made = tmp_path_factory.mktemp("written")
    write_outputs(session, made)
    return made


def test_the_figures_are_the_step_time_breakdown_and_add_up_to_the_step(session: Session) -> None:
    found = figures(session)
    assert found == pytest.approx(FIGURES)
    parts = (found[name] for name in found if name != "profiler_ext/step_ms")
    assert math.isclose(sum(parts), found["profiler_ext/step_ms"])


def test_tensorboard_has_the_figures_the_tables_and_the_session(
    session: Session, folder: Path, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from torch.utils.tensorboard import SummaryWriter
    with SummaryWriter(str(tmp_path)) as writer:
        tensorboard.log_session(session, folder, writer, step=7)
    reported = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    reported.Reload()
    scalars = {name: reported.Scalars(name) for name in reported.Tags()["scalars"]}
    assert {name: each[0].value for name, each in scalars.items()} == pytest.approx(FIGURES)
    assert {each[0].step for each in scalars.values()} == {7}
    texts = {name: reported.Tensors(name)[0] for name in reported.Tags()["tensors"]}
    text = texts["profiler_ext/findings/text_summary"].tensor_proto.string_val[0].decode()
    assert "GPU idle: the CPU is launch-bound" in text
    assert "profiler_ext/coverage/text_summary" in texts
    with gzip.open(tmp_path / "rank0.attribution.json.gz") as file:  # what our tab reads
        breakdown = msgspec.json.decode(file.read())["breakdown"]
    assert [row["duration_ns"] for row in breakdown] == list(session.coverage().duration_ns)


def test_mlflow_has_the_figures_the_tables_and_the_files(
    session: Session, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow

        from profiler_ext.integrations.mlflow import log_session

        mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
        with pytest.raises(UsageError, match=r"call mlflow.start_run\(\) first, or give run_id="):
            log_session(session, folder)
        with mlflow.start_run() as run:
            log_session(session, folder)
        client = mlflow.MlflowClient()
        there = client.list_artifacts(run.info.run_id, "profiler_ext")
        names = {Path(each.path).name for each in there}
        table = mlflow.load_table("profiler_ext/findings.json", run_ids=[run.info.run_id])
        at = client.download_artifacts(run.info.run_id, "profiler_ext", str(tmp_path))
    assert client.get_run(run.info.run_id).data.metrics == pytest.approx(FIGURES)
    written = {each.name for each in folder.iterdir()}
    assert names == written | {"coverage.json", "findings.json"}
    assert list(table.est_saving_ns) == list(session.findings().est_saving_ns)
    assert load(at).coverage().equals(session.coverage())


def test_wandb_has_the_figures_the_tables_the_report_and_the_files(
    session: Session, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wandb = pytest.importorskip("wandb")
        from profiler_ext.integrations.wandb import log_session

        with pytest.raises(UsageError, match=r"call wandb.init\(\) first, or give run="):
            log_session(session, folder)
        with wandb.init(project="of_tests", dir=str(tmp_path)) as run:
            artifact = log_session(session, folder)
            fields = dict(run.summary)
        (kept,) = tmp_path.glob("wandb/offline-run-*/files/media")
    assert {name: fields[name] for name in FIGURES} == pytest.approx(FIGURES)
    assert set(artifact.manifest.entries) == {each.name for each in folder.iterdir()}
    assert artifact.type == "profile"
    assert {each.parent.name for each in kept.rglob("*.json")} == {"profiler_ext"}
    (page,) = kept.rglob("*.html")
    assert page.read_bytes() == (folder / "report.html").read_bytes()


@pytest.mark.parametrize(
    ("module", "extra"),
    [("huggingface", HUGGINGFACE), ("lightning", LIGHTNING), ("wandb", WANDB), ("mlflow", MLFLOW)],
    ids=lambda each: getattr(each, "name", ""),
)
def test_a_library_that_is_missing_is_a_sentence_with_the_command(
    monkeypatch: pytest.MonkeyPatch, module: str, extra: Extra
) -> None:
    monkeypatch.setitem(sys.modules, extra.module, None)
    monkeypatch.delitem(sys.modules, f"profiler_ext.integrations.{module}", raising=False)
    with pytest.raises(MissingExtraError, match=re.escape(f"run: {extra.install}") + "$"):
        importlib.import_module(f"profiler_ext.integrations.{module}")
