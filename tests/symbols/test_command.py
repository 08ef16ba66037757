"""What the recording of tables says where there is nothing to record."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.symbols.__main__ import main

_PIP = """WARNING: slow
ERROR: Could not find a version that satisfies the requirement torch==99.0 (from versions: 2.1)
ERROR: No matching distribution found for torch==99.0
"""


def test_a_version_that_pip_does_not_fetch_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(command: list[str], **_: Any) -> None:
        raise subprocess.CalledProcessError(1, command, stderr=_PIP)

    monkeypatch.setattr(subprocess, "run", fails)
    monkeypatch.setattr(sys, "argv", ["symbols", "99.0"])
    assert main() == (
        "pip did not fetch torch 99.0: Could not find a version that satisfies the requirement "
        "torch==99.0; give a version that PyPI has, or a wheel or a site-packages folder at hand"
    )


@pytest.mark.parametrize("name", ["a.whl", "folder"])
def test_what_is_no_torch_is_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / name
    place.write_text("nothing") if name.endswith("whl") else place.mkdir()
    monkeypatch.setattr(sys, "argv", ["symbols", str(place)])
    status = main()
    assert status is not None and status.startswith(f"{place} has no table (")
