"""Annotated source has the time of each line in its margin, and fits the terminal."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from profiler_ext.errors import UsageError
from profiler_ext.exporters.terminal.annotate import annotate
from tests.analyses import GPU_PLACES, gpu_step
from tests.exporters.test_sources import TEXT
from tests.gpu_model import MODEL

INT = """\
train.py · torch 2.11.0 · NVIDIA H200 · 1 step · 9 launches

model.py: 140 us in 1 step
forward  backward   line  code
                       1
                       2
                       3
                       4
                       5
                       6
                       7
                       8
                       9
                      10
                      11
50.0 us   50.0 us     12      h = self.up(x)
13.3 us   20.0 us     13      h = F.gelu(h)
6.67 us               14      return self.down(h.to(x.dtype))
"""
RECORDED = """\
model.py: 140 us in 1 step
only the recorded lines are known: the file is not here, or under no --root
forward  backward   line  code
50.0 us   50.0 us     12  h = self.up(x)
"""


def test_source_has_the_time_of_each_phase_in_the_margin():
    assert annotate([gpu_step()], {MODEL: TEXT}, width=80) == INT


def test_a_file_that_is_not_there_shows_the_recorded_lines():
    assert RECORDED in annotate([gpu_step()], {}, ("model.py",), width=80)


def test_lines_in_between_that_are_not_known_are_marked():
    places = tuple(replace(p, line=99, stack=()) if p.line == 14 else p for p in GPU_PLACES)
    lines = annotate([replace(gpu_step(), places=places)], {}, width=80).splitlines()
    assert [line.strip() for line in lines[-3:]] == [
        "13.3 us   20.0 us     13  h = F.gelu(h)",
        "...",
        "6.67 us               99  return self.down(h.to(x.dtype))",
    ]


def test_a_file_without_time_is_shown_when_it_is_named():
    assert "train.py: 0 ns in 1 step" in annotate([gpu_step()], {}, ("train.py",))


@pytest.mark.parametrize("width", [30, 60, 200])
def test_no_line_is_wider_than_the_terminal(width):
    code = "x = " + "long_name + " * 50
    places = tuple(replace(place, code=code) for place in GPU_PLACES)
    text = annotate([replace(gpu_step(), places=places)], {}, width=width)
    assert max(map(len, text.splitlines())) == width


def test_code_does_not_steer_the_terminal():
    places = tuple(replace(place, code="\x1b]0;owned\x07[red]x[/red]") for place in GPU_PLACES)
    text = annotate([replace(gpu_step(), places=places)], {})
    assert "\N{REPLACEMENT CHARACTER}]0;owned\N{REPLACEMENT CHARACTER}[red]x[/red]" in text
    assert "\x1b" not in text


def test_json_holds_raw_nanoseconds():
    document = json.loads(annotate([gpu_step()], {}, ("gpt/model.py",), format="json"))
    (file,) = document["files"]
    assert (document["schema_version"], file["path"], file["is_complete"]) == (3, MODEL, False)
    assert file["duration_ns"] == 140_001
    assert file["lines"][1] == {
        "line": 13,
        "text": "h = F.gelu(h)",
        "phases_ns": {"forward": 13_334, "backward": 20_000},
    }


def test_nothing_attributed_to_a_line_says_so():
    places = tuple(replace(p, file=None, line=None, stack=()) for p in GPU_PLACES)
    text = annotate([replace(gpu_step(), places=places)], {})
    assert text.splitlines()[1:] == ["No device time is attributed to a source line."]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"files": ("odel.py",)}, "no source file 'odel.py'; it has: .*gpt/model.py"),
        ({"format": "xml"}, "there is no format 'xml'; ask for text or json"),
    ],
)
def test_what_is_not_there_cannot_be_asked_for(asked, message):
    with pytest.raises(UsageError, match=message):
        annotate([gpu_step()], {}, **asked)
