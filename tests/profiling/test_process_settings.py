"""What a recording says of its process, whatever the program did to it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from profiler_ext.profiling.assembly import settings_of_process


@pytest.mark.parametrize(
    ("argv", "command"),
    [(["train.py", "-x"], ("train.py", "-x")), ([Path("a.py"), 3], ("a.py", "3")), (None, ())],
)
def test_the_command_is_reported_of_whatever_the_program_has_for_arguments(
    monkeypatch: pytest.MonkeyPatch, argv: Any, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    assert settings_of_process((), "none", (), ()).command == command
