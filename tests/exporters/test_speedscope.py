"""The flame graphs for speedscope: a valid file that holds a step's time, in the order of its work.

The schema states what speedscope's ``file-format-spec.ts`` says of sampled profiles.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from profiler_ext import load
from profiler_ext.exporters.speedscope import export_ranks, export_speedscope
from profiler_ext.records.analysis import Analysis
from tests.analyses import cpu_step, gpu_step
from tests.frames import by_phase

H200 = Path(__file__).parents[1] / "fixtures" / "h200"
RECORDED = sorted(H200.rglob("*session.pt.trace.json.gz"))
_NUMBERS = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_WHAT = ("type", "name", "unit")
SCHEMA = {
    "type": "object",
    "required": ["$schema", "shared", "profiles"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "name": {"type": "string"},
        "exporter": {"type": "string"},
        "activeProfileIndex": {"type": "integer"},
        "shared": {
            "type": "object",
            "required": ["frames"],
            "properties": {
                "frames": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "additionalProperties": False,
                        "properties": {
                            "name": {"type": "string", "minLength": 1},
                            "file": {"type": "string"},
                            "line": {"type": "integer"},
                            "col": {"type": "integer"},
                        },
                    },
                }
            },
        },
        "profiles": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": [
                    "type",
                    "name",
                    "unit",
                    "startValue",
                    "endValue",
                    "samples",
                    "weights",
                ],
                "additionalProperties": False,
                "properties": {
                    "type": {"const": "sampled"},
                    "name": {"type": "string"},
                    "unit": {"const": "nanoseconds"},
                    "startValue": {"type": "integer"},
                    "endValue": {"type": "integer"},
                    "samples": {"type": "array", "items": _NUMBERS},
                    "weights": _NUMBERS,
                },
            },
        },
    },
}


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    jsonschema.validate(document, SCHEMA)
    frames = len(document["shared"]["frames"])
    for profile in document["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
        assert all(number < frames for stack in profile["samples"] for number in stack)
    return document


def step_times_ns(analyses: Sequence[Analysis]) -> list[int]:
    return [
        int(each.launches.duration_ns[each.launches.step.filled(-1) == step.number].sum())
        for each in analyses
        for step in each.steps
    ]


@pytest.mark.sweep
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.split(".session")[0])
def test_each_step_is_a_profile_of_all_its_device_time(path: Path, tmp_path: Path) -> None:
    session = load(path)
    document = read(session.export(tmp_path / "flame.speedscope.json"))
    assert [profile["endValue"] for profile in document["profiles"]] == step_times_ns(
        session.analyses
    )


@pytest.mark.parametrize("analysis", [gpu_step(), cpu_step()], ids=["gpu", "cpu"])
def test_a_phase_has_the_time_that_the_table_has(analysis: Analysis, tmp_path: Path) -> None:
    document = read(export_speedscope(analysis, tmp_path / "f.speedscope.json"))
    names = [frame["name"] for frame in document["shared"]["frames"]]
    spent: dict[str, int] = {}
    for profile in document["profiles"]:
        for stack, weight in zip(profile["samples"], profile["weights"], strict=True):
            spent[names[stack[0]]] = spent.get(names[stack[0]], 0) + weight
    table = by_phase(analysis)
    assert spent == dict(zip(table.phase, table.duration_ns, strict=True))


def test_a_stack_is_phase_modules_line_and_kernel(tmp_path: Path) -> None:
    session = load(H200 / "mlp.session.pt.trace.json.gz")
    document = read(session.export(tmp_path / "f.speedscope.json"))
    frames = document["shared"]["frames"]
    stacks = [[frames[n]["name"] for n in each] for each in document["profiles"][0]["samples"]]
    line = "mlp.py:19  h = F.gelu(self.up(x))"
    fused = "triton_per_fused_gelu_native_layer_norm_0"
    assert stacks[:3] == [
        ["forward", "(model)", "up", line, "extern_kernels.addmm"],
        ["forward", "(model)", line, fused],
        ["forward", "(model)", "norm", "mlp.py:20  h = self.norm(h)", fused],
    ]
    assert {"name": line, "file": "examples/mlp.py", "line": 19} in frames
    assert stacks[7][:2] == ["forward", "aten::mse_loss"]  # eager work without a line


def test_ranks_are_named(tmp_path: Path) -> None:
    ranks = [load(H200 / "cases" / f"ddp.rank_{n}.session.pt.trace.json.gz") for n in (0, 1)]
    analyses = [each.analysis for each in ranks]
    document = read(export_ranks(analyses, tmp_path / "f.speedscope.json"))
    profiles = document["profiles"]
    assert [profile["name"].partition(",")[0] for profile in profiles] == [
        f"rank {each.recording.settings.rank}" for each in analyses for _ in each.steps
    ]
    assert [profile["endValue"] for profile in profiles] == step_times_ns(analyses)


def test_without_a_step_it_holds_all_launches(tmp_path: Path) -> None:
    whole = replace(gpu_step(), steps=())
    (profile,) = read(export_speedscope(whole, tmp_path / "f.speedscope.json"))["profiles"]
    assert (profile["name"], profile["endValue"]) == (
        "all launches",
        int(whole.launches.duration_ns.sum()),
    )
