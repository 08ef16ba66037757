"""The sessions that several tests read; each model is compiled once, in one cache."""

from pathlib import Path

import pytest

from profiler_ext.sessions.session import Session, load
from tests.compiling import fresh_torch
from tests.end_to_end.processes import EXAMPLES, profiled

__all__ = ["fresh_torch"]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of compiled graphs; what one process compiled is warm for the next."""
    return tmp_path_factory.mktemp("inductor")


@pytest.fixture(scope="session")
def mlp_folder(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a run of the MLP wrote."""
    return profiled(cache, tmp_path_factory.mktemp("mlp"), EXAMPLES / "mlp.py")


@pytest.fixture(scope="session")
def mlp(mlp_folder: Path) -> Session:
    """The MLP, compiled by its own process; its optimizer is eager."""
    return load(mlp_folder)


@pytest.fixture(scope="session")
def gpt(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """The GPT: forward, backward and update are compiled."""
    words = ("--width", "64", "--heads", "2", "--tokens", "32", "--steps", "4")
    return load(profiled(cache, tmp_path_factory.mktemp("gpt"), EXAMPLES / "gpt.py", *words))


@pytest.fixture(scope="session")
def llama(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A Hugging Face Llama with random weights."""
    pytest.importorskip("transformers")
    return load(profiled(cache, tmp_path_factory.mktemp("llama"), EXAMPLES / "llama.py"))
