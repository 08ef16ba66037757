"""The version is one, and another one is told to be newer or not."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import profiler_ext
from profiler_ext.version import VERSION, is_newer


def test_the_package_and_its_wheel_have_one_version() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert (profiler_ext.__version__, project["version"]) == (VERSION, VERSION)
    assert f"\nversion: {VERSION}\n" in (Path(__file__).parents[1] / "CITATION.cff").read_text()


@pytest.mark.parametrize(
    ("version", "newer"),
    [
        ("0.0.9", False),
        ("0.2.9", False),
        ("0.3", False),
        ("0.3.0.0", False),
        ("0.3.1", True),
        ("0.4.0.dev3", True),
        ("0.10", True),
        ("1", True),
        ("", False),
        ("of today", False),
    ],
)
def test_a_version_is_newer_by_its_release(version: str, newer: bool) -> None:
    assert is_newer(version) is newer
