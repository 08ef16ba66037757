from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from profiler_ext.exporters.tensorboard_plugin.document import SUFFIX
from tests.tensorboard.sessions import EVIL, ROOT, evil, mlp


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[str]:
    """Serve four runs: a session, one with an evil name, one cut short, one of another tool."""
    pytest.importorskip("torch_tb_profiler")
    log_dir = tmp_path_factory.mktemp("logs")
    mlp().export(log_dir / "first")
    evil().export(log_dir / "second")
    cut = (log_dir / "first" / f"rank0{SUFFIX}").read_bytes()[:700]
    for run, content in (("cut", cut), ("foreign", b"\x89PNG"), (EVIL, b"")):
        (log_dir / run).mkdir()
        (log_dir / run / f"rank0{SUFFIX}").write_bytes(content)
    with served(log_dir) as url:
        yield url


@contextmanager
def served(log_dir: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.tensorboard.serve", str(log_dir)]
    with (log_dir / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
        try:
            url = process.stdout.readline().decode().strip()
            assert url.startswith("http://"), (log_dir / "server.log").read_text()
            yield url
        finally:
            process.communicate()
