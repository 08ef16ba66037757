"""Kineto's log is kept off the screen of a machine without a GPU, and of no other."""

from __future__ import annotations

import os

import pytest

from profiler_ext.torch_compat import profilers

VARIABLE = "KINETO_LOG_LEVEL"


@pytest.fixture(autouse=True)
def no_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(profilers, "_GPU_FILES", ("no_such_device",))


def levels() -> tuple[str | None, str | None]:
    with profilers.without_kineto_noise():
        within = os.environ.get(VARIABLE)
    return within, os.environ.get(VARIABLE)


def test_without_a_gpu_there_is_no_log_while_kineto_is_prepared() -> None:
    assert levels() == ("6", None)


def test_where_a_gpu_may_be_its_errors_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profilers, "_GPU_FILES", ("nul*",))  # as of /dev/null
    assert levels() == (None, None)


def test_a_level_of_the_user_s_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    assert levels() == ("0", "0")
