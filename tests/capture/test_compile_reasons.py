"""What is said of graph breaks and recompilations is what torch's own logs say, word for word."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.whole

SCRIPT = Path(__file__).parent / "scripts" / "compile_reasons.py"
LINE = re.compile(r"^\w\d{4} .*?\] \[(?P<id>\S+?)\] \[__(?P<log>\w+)\] ?(?P<text>.*)$")
BREAK = re.compile(r"^Graph break .*in user code at (?P<file>.*):(?P<line>\d+)$")
AGAIN = re.compile(r"^Recompiling function (?P<function>.*) in (?P<place>.*)$")
RESUMED = re.compile(r"torch_dynamo_resume_in_(.*)_at_\d+")
AFTER_THE_REASON = ("Stack variable source attribution:", "User code traceback:")
REASON = "Graph Break Reason: "


@lru_cache(maxsize=1)
def ran() -> tuple[dict[str, Any], tuple[tuple[str, str, str], ...]]:
    """What was recorded, and the lines of torch's logs: compile id, log and text."""
    env = {**os.environ, "TORCH_LOGS": "recompiles,graph_breaks"}
    command = [sys.executable, str(SCRIPT)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    lines = (LINE.match(line) for line in done.stderr.splitlines())
    return json.loads(done.stdout), tuple((m["id"], m["log"], m["text"]) for m in lines if m)


def logged(log: str, head: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str], list[str]]]:
    """Each message of a log: its compile id, its first line and those after it."""
    message: tuple[str, re.Match[str], list[str]] | None = None
    for compile_id, of, text in ran()[1]:
        if of != log:
            continue
        if begun := head.match(text):
            if message is not None:
                yield message
            message = (compile_id, begun, [])
        elif message is not None:
            message[2].append(text)
    if message is not None:
        yield message


def reason_of(lines: list[str]) -> str:
    """The reason that a message on a graph break tells, which places follow."""
    end = next((n for n, line in enumerate(lines) if line in AFTER_THE_REASON), len(lines))
    return "\n".join(lines[:end]).removeprefix(REASON).strip()


def test_every_graph_break_is_reported_with_torchs_reason_and_line() -> None:
    of_torch = [
        [compile_id, head["file"], int(head["line"]), reason_of(lines)]
        for compile_id, head, lines in logged("graph_breaks", BREAK)
    ]
    assert len(of_torch) == 11
    ours = [[*reported[:3], reported[3].strip()] for reported in ran()[0]["breaks"]]
    assert ours == of_torch


def test_every_recompilation_is_reported_with_the_guards_that_failed() -> None:
    of_torch = [
        {
            "id": compile_id,
            "function": RESUMED.sub(r"\1", head["function"]),
            "place": head["place"],
            "guards": guards_of(lines),
        }
        for compile_id, head, lines in logged("recompiles", AGAIN)
    ]
    assert len(of_torch) == 9
    assert ran()[0]["recompiles"] == of_torch


def guards_of(lines: list[str]) -> list[list[Any]]:
    """Each code that did not serve: its compile id, the guard, and the user's frames."""
    found: list[list[Any]] = []
    for text in (line.strip().removeprefix("- ") for line in lines):
        if reported := re.match(r"(\d+/\d+): (.*)", text):
            found.append([reported[1], reported[2], []])
        elif place := re.match(r'\s*File "(.*)", line (\d+), in ', text):
            found[-1][2].append([place[1], int(place[2])])
    return found


def test_what_dynamo_gave_up_is_reported_and_nothing_else_is_missing() -> None:
    assert ran()[0]["failures"] == [
        ["branches", "Unsupported"],  # the limit of recompilations
        ["breaks_in_a_loop", "Unsupported"],
        ["breaks_in_a_try", "Unsupported"],
        ["takes_text", "Unsupported"],
    ]
    assert ran()[0]["gaps"] == []
