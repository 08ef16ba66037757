"""By what libraries choose their kernels: the version that is loaded, and what they are told."""

from __future__ import annotations

import ctypes
from importlib.metadata import distributions
from pathlib import Path

import pytest
import torch

from profiler_ext.torch_compat import accelerator


def _installed() -> Path | None:
    files = (file for each in distributions() for file in each.files or ())
    named = (file for file in files if file.name.startswith("libcublasLt.so."))
    return next((Path(str(file.locate())) for file in named), None)


@pytest.mark.skipif(_installed() is None, reason="this torch came without cuBLAS")
def test_the_version_of_cublas_is_that_of_the_library_which_is_loaded() -> None:
    library = ctypes.CDLL(str(_installed()))
    major = int(str(_installed()).rpartition(".")[2])
    assert accelerator.cublas_version() == library.cublasLtGetVersion()
    assert library.cublasLtGetVersion() // 10_000 == major


def test_without_cublas_there_is_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.version.cuda", "none.0")
    assert accelerator.cublas_version() is None


def test_only_what_libraries_heed_in_the_environment_names_their_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = accelerator.choice_digest()
    monkeypatch.setenv("TORCH_LOGS", "output_code")
    assert accelerator.choice_digest() == before
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert accelerator.choice_digest() != before


def test_the_precision_of_products_is_of_their_choice() -> None:
    before = torch.get_float32_matmul_precision()
    reported = []
    for precision in ("highest", "high", before):
        torch.set_float32_matmul_precision(precision)
        reported.append(accelerator.choice_digest())
    assert (reported[0] != reported[1], reported[0] == reported[2]) == (True, before == "highest")
